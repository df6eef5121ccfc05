# Two images of one source: `operator` decides, `spark` is what drivers and executors run.
#
#   docker build --target operator --tag REGISTRY/cdcsync-operator:0.1.0 .
#   docker build --target spark    --tag REGISTRY/cdcsync-spark:0.1.0    .
#
# What is installed is pinned by checksum (docker/*.lock); the final images hold no pip, no compiler, no secret. The product itself is
# the last layer, so a change of it costs seconds to build and to pull.
#
# A release names its base by digest, so that everybody builds on the same bytes; with RELEASE, a base by tag alone is refused:
#
#   docker build --build-arg RELEASE=0.1.0 --build-arg BASE=debian:bookworm-slim@sha256:... --target operator ...
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS checked
ARG BASE
ARG RELEASE=
RUN case "$RELEASE $BASE" in \
      ' '* | *@sha256:????????????????????????????????????????????????????????????????) echo "$BASE" > /base ;; \
      *) echo "release $RELEASE: found BASE=$BASE; needed: a base by digest; remedy: --build-arg BASE=$BASE@sha256:..." >&2; exit 1 ;; \
    esac

FROM ${BASE} AS python
RUN apt-get update -qq \
 && apt-get install -qqy --no-install-recommends python3 tini >/dev/null \
 && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/*/* \
 && useradd --uid 65532 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin cdcsync
ENV PATH=/opt/cdcsync/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

FROM python AS tools
RUN apt-get update -qq && apt-get install -qqy --no-install-recommends python3-venv >/dev/null && python3 -m venv /opt/cdcsync

# Of the client of the API server, its half for asyncio (68 MB) is not used.
FROM tools AS operator-packages
COPY docker/operator.lock .
RUN pip install --quiet --no-cache-dir --require-hashes --requirement operator.lock && pip uninstall --quiet --yes setuptools pip \
 && rm -r /opt/cdcsync/lib/python3*/site-packages/kubernetes/aio

FROM tools AS spark-packages
COPY docker/spark.lock .
RUN pip install --quiet --no-cache-dir --require-hashes --requirement spark.lock && pip uninstall --quiet --yes setuptools pip \
 && rm -r /opt/cdcsync/lib/python3*/site-packages/kubernetes/aio

FROM tools AS product
COPY docker/build.lock .
RUN pip install --quiet --no-cache-dir --require-hashes --requirement build.lock
WORKDIR /src
COPY --from=checked /base /base
COPY . .
RUN pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
 && pip install --quiet --no-deps --no-index --prefix /product /wheels/*.whl

FROM python AS operator
LABEL org.opencontainers.image.title="cdcsync operator" \
      org.opencontainers.image.description="Runs CdcSync resources: change data capture from MySQL and MariaDB into Delta tables" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=operator-packages /opt/cdcsync /opt/cdcsync
# No program runs with the rights of another user or group.
RUN find / -xdev -perm /6000 -exec chmod ug-s {} +
USER 65532:65532
ARG BASE
LABEL org.opencontainers.image.base.name="${BASE}"
WORKDIR /tmp
ENTRYPOINT ["/usr/bin/tini", "--"]
CMD ["python", "-m", "cdcsync_operator.cluster.handlers"]
COPY --from=product /product /opt/cdcsync

FROM python AS spark
LABEL org.opencontainers.image.title="cdcsync driver" \
      org.opencontainers.image.description="Drivers and executors of cdcsync" \
      org.opencontainers.image.licenses="Apache-2.0"
# openjdk puts links into the manual's folders, which slim images lack.
RUN mkdir -p /usr/share/man/man1 && apt-get update -qq \
 && apt-get install -qqy --no-install-recommends openjdk-17-jre-headless procps >/dev/null \
 && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/*/*
COPY --from=spark-packages /opt/cdcsync /opt/cdcsync
# What Spark starts faster with: its home and a class archive, which knows Spark's classes only, not ours.
WORKDIR /tmp/warm/cdcsync_spark/engine
COPY spark_app/cdcsync_spark/engine/__init__.py spark_app/cdcsync_spark/engine/start.py spark_app/cdcsync_spark/engine/jvm_options.py ./
COPY spark_app/cdcsync_spark/engine/home.py spark_app/cdcsync_spark/engine/class_archive.py ./
WORKDIR /tmp
RUN PYTHONPATH=/tmp/warm SPARK_LOCAL_IP=127.0.0.1 SPARK_LOCAL_HOSTNAME=localhost python -m cdcsync_spark.engine.class_archive && rm -rf /tmp/*
COPY docker/entrypoint.py /opt/cdcsync/entrypoint.py
ENV SPARK_HOME=/opt/cdcsync/share/cdcsync/spark
RUN find / -xdev -perm /6000 -exec chmod ug-s {} +
USER 65532:65532
ARG BASE
LABEL org.opencontainers.image.base.name="${BASE}"
WORKDIR /tmp
ENTRYPOINT ["/usr/bin/tini", "--", "/opt/cdcsync/bin/python", "-I", "/opt/cdcsync/entrypoint.py"]
COPY --from=product /product /opt/cdcsync
