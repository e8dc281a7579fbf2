"""The messages of Apache's gRPC services, `apache.rocketmq.v2`, and the modules that protoc has made of them.

`make protos` makes the modules anew after a change of a `.proto`; they are not edited.
"""
