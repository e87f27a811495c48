"""Speaks to a gate of Freehold with Python's own gRPC: what it learns of the services it learns by reflection.

    python3 grpc_peer.py ADDRESS CERTIFICATE TOKEN_FILE
"""

import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Token(grpc.AuthMetadataPlugin):
    def __init__(self, token):
        self.token = token

    def __call__(self, context, callback):
        callback((("authorization", "Bearer " + self.token),), None)


def main(address, certificate, token_file):
    with open(certificate, "rb") as file:
        tls = grpc.ssl_channel_credentials(file.read())
    with open(token_file) as file:
        token = grpc.metadata_call_credentials(Token(file.read().strip()))
    # Health is for everybody, the rest for who shows the token.
    with grpc.secure_channel(address, tls) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(service="freehold.v1.Freehold"), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING, answer
    with grpc.secure_channel(address, grpc.composite_channel_credentials(tls, token)) as channel:
        found = ProtoReflectionDescriptorDatabase(channel)
        services = sorted(found.get_services())
        print("services:", ", ".join(services))
        assert "freehold.v1.Freehold" in services, services
        pool = descriptor_pool.DescriptorPool(found)
        service = pool.FindServiceByName("freehold.v1.Freehold")

        def make(name, **fields):
            return message_factory.GetMessageClass(pool.FindMessageTypeByName("freehold.v1." + name))(**fields)

        def stub(kind, name):
            method = service.methods_by_name[name]
            answer = message_factory.GetMessageClass(method.output_type)
            path = "/freehold.v1.Freehold/" + name
            return getattr(channel, kind)(
                path,
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=answer.FromString,
            )

        def ask(name, request):
            return stub("unary_unary", name)(request, timeout=10)

        totals = ask("Totals", make("TotalsRequest"))
        print("totals:", totals.budget_bytes, "bytes")
        assert totals.budget_bytes > 0, totals

        session, data = b"a python session", bytes(range(256)) * 16
        ask("Open", make("OpenRequest", session=session, life_ms=5000))
        call = lambda number: make("Call", session=session, number=number)
        block = ask("Alloc", make("AllocRequest", call=call(1), bytes=len(data)))
        begin = make("UploadBegin", call=call(2), block=block.block, bytes=len(data))
        chunk = make("Chunk", data=data, crc32c=crc32c(data))
        parts = [
            make("UploadMessage", begin=begin),
            make("UploadMessage", chunk=chunk),
            make("UploadMessage", end=make("UploadEnd", crc32c=crc32c(data))),
        ]
        uploaded = stub("stream_unary", "Upload")(iter(parts), timeout=10)
        assert uploaded.complete and uploaded.bytes == len(data), uploaded
        request = make("DownloadRequest", session=session, block=block.block, chunk_bytes=1000)
        back = b"".join(part.chunk.data for part in stub("unary_stream", "Download")(request, timeout=10))
        assert back == data, "other bytes came back than went up"
        print("blocks:", len(back), "bytes there and back")
        try:
            ask("Alloc", make("AllocRequest", call=call(1), bytes=1))
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
            print("refused:", error.details())
        else:
            raise AssertionError("a number was used twice")
        ask("Close", make("CloseRequest", session=session))
    print("OK")


if __name__ == "__main__":
    main(*sys.argv[1:])
