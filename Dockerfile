# Two images with the same program; any builder can make them:
#
#   docker build --tag comet .                             the binary in an empty image
#   docker build --target full --tag comet:full .          with Node.js and uv, for MCP servers
#                                                          that comet starts as local programs
#   docker run --publish 127.0.0.1:8080:8080 --volume comet-data:/data comet
#
# The build runs on the builder's platform and compiles for the platform of the image
# (docker buildx build --platform linux/amd64,linux/arm64).
FROM --platform=${BUILDPLATFORM:-linux/amd64} golang:1.26-alpine AS build
WORKDIR /src

# The modules first: this layer is kept until go.mod changes.
COPY go.mod go.sum ./
COPY third_party ./third_party
RUN go mod download

COPY . .
ARG TARGETOS
ARG TARGETARCH
# What `comet version` and the metrics show; the git history is not in the build context.
ARG VERSION=
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/comet ./cmd/comet

# What an empty image lacks and the program needs: a place for temporary files,
# and a data folder that its user may write to. A named volume takes its owner
# from here.
RUN mkdir -p /out/owned/data /out/owned/tmp && chmod 0700 /out/owned/data && chmod 1777 /out/owned/tmp

FROM node:24-bookworm-slim AS full
ARG VERSION=
ARG REVISION=
ARG SOURCE=
LABEL org.opencontainers.image.title="comet" \
      org.opencontainers.image.description="A control plane for AI agents, with Node.js and uv" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
RUN groupadd --gid 65532 comet && useradd --uid 65532 --gid 65532 --home-dir /data/home --no-create-home comet
COPY --from=ghcr.io/astral-sh/uv:0.9 /uv /uvx /usr/local/bin/
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /out/owned/data /data
COPY --from=build /out/comet /comet
USER 65532:65532
# HOME is on the volume: npx and uvx keep there what they download.
ENV COMET_LISTEN=0.0.0.0:8080 \
    COMET_DATA=/data \
    HOME=/data/home
VOLUME ["/data"]
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["/comet", "healthcheck"]
ENTRYPOINT ["/comet"]
CMD ["serve"]

# The last stage is the default.
FROM scratch AS minimal
ARG VERSION=
ARG REVISION=
ARG SOURCE=
LABEL org.opencontainers.image.title="comet" \
      org.opencontainers.image.description="A control plane for AI agents" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
# Certificates, for a database that is reached by TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /out/owned/ /
COPY --from=build /out/comet /comet
# By number: there is no /etc/passwd here, and orchestrators want to see that it
# is not root.
USER 65532:65532
ENV COMET_LISTEN=0.0.0.0:8080 \
    COMET_DATA=/data
VOLUME ["/data"]
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["/comet", "healthcheck"]
ENTRYPOINT ["/comet"]
CMD ["serve"]
