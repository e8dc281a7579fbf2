"""The port of Apache's gRPC services: tools ask `Admin`, clients of RocketMQ 5 `MessagingService`.

It is served by a process of its own, which no process without `serve --grpc` imports.
"""
