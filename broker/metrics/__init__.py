"""What a server reports of itself: figures that all workers share, and how Prometheus gets them."""
