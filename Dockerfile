# Two images from one file: the server (the default, and the last stage) and `--target spark`, whose executors need the same
# NumPy and RocketLens plus a Java runtime. Neither has a compiler. Everything installed is pinned with hashes, the base by its digest; a newer one
# is named by `docker buildx imagetools inspect python:3.12-slim-bookworm`.

ARG BASE=python:3.12-slim-bookworm@sha256:54c85f3c47607a77f32adec749d3c81d1348bf25833671f512b26a9b6d778cb3

# The wheel, kernels included. The compiler, ziglang, is pinned like all the rest and stays in this stage.
FROM $BASE AS compile
WORKDIR /src
COPY requirements-build.lock requirements-build-zig.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements-build.lock -r requirements-build-zig.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY build_backend build_backend
COPY rocketlens rocketlens
COPY protocol protocol
COPY storage storage
COPY broker broker
COPY spark_jobs spark_jobs
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheel .

FROM $BASE AS build
RUN python -m venv /opt/rocketlens
COPY requirements.lock ./
RUN /opt/rocketlens/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY --from=compile /wheel /wheel
RUN /opt/rocketlens/bin/pip install --no-cache-dir --no-deps --no-index /wheel/*.whl

FROM build AS spark-build
COPY requirements-spark.lock ./
RUN /opt/rocketlens/bin/pip install --no-cache-dir --require-hashes -r requirements-spark.lock

# Stores are read with the rights of an unprivileged user; all it may write is /state, caches included.
FROM $BASE AS base
RUN useradd --uid 10001 --create-home rocketlens && install -d -o rocketlens -g rocketlens /state /work
ENV PATH=/opt/rocketlens/bin:$PATH XDG_CACHE_HOME=/state/cache PYTHONUNBUFFERED=1

FROM base AS spark
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=spark-build /opt/rocketlens /opt/rocketlens
USER rocketlens
WORKDIR /work
EXPOSE 7077 8080
CMD ["spark-class", "org.apache.spark.deploy.master.Master"]

FROM base AS server
COPY --from=build /opt/rocketlens /opt/rocketlens
USER rocketlens
EXPOSE 10911 9180
# Whether clients can connect; while a store is being opened the answer is 503 "starting: …", which counts as no failure for
# an hour. The check asks past any proxy that the environment names.
HEALTHCHECK --interval=10s --timeout=3s --start-period=1h \
    CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 9180, timeout=2); c.request('GET', '/readyz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["rocketlens"]
CMD ["serve", "/store", "--listen", "0.0.0.0:10911", "--state-dir", "/state", "--http", "0.0.0.0:9180"]
