# A static binary in an empty image. Built without BuildKit's extras, so that any
# builder can do it:
#
#   docker build --tag comet .
#   docker run --publish 127.0.0.1:8080:8080 --volume comet-data:/data comet
FROM golang:1.26-alpine AS build
WORKDIR /src

# The modules first: this layer is kept until go.mod changes.
COPY go.mod go.sum ./
COPY third_party ./third_party
RUN go mod download

COPY . .
# What `comet version` and the metrics say; the git history stays outside.
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/comet ./cmd/comet

# What an empty image lacks and the program needs: a place for temporary files,
# and a data folder that its user may write to. A named volume takes its owner
# from here.
RUN mkdir -p /out/owned/data /out/owned/tmp && chmod 0700 /out/owned/data && chmod 1777 /out/owned/tmp

FROM scratch
LABEL org.opencontainers.image.title="comet" \
      org.opencontainers.image.description="A control plane for AI agents" \
      org.opencontainers.image.licenses="Apache-2.0"
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
