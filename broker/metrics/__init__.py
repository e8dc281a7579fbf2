"""What a server tells of itself: figures that all workers share, and how Prometheus gets them."""
