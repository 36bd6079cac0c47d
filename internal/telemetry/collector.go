package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// collector sends spans to a collector with OTLP over HTTP. It implements otlptrace.Client. The client of otlptracehttp would
// add the gRPC library to the program, about 2 MB.
type collector struct {
	url  string
	http http.Client
}

// newCollector returns a client of the collector at an endpoint, such as http://127.0.0.1:4318.
func newCollector(endpoint string) (*collector, error) {
	at, err := url.Parse(endpoint + "/v1/traces")
	if err == nil && (at.Host == "" || at.Scheme != "http" && at.Scheme != "https") {
		err = fmt.Errorf("the endpoint %q is not an http or https URL", endpoint)
	}
	if err != nil {
		return nil, err
	}
	return &collector{url: at.String(), http: http.Client{Timeout: spanTimeout}}, nil
}

// Start implements otlptrace.Client.
func (c *collector) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *collector) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// spansField is the field resource_spans of ExportTraceServiceRequest, the message that a collector receives.
const spansField = 1

// UploadTraces implements otlptrace.Client.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	var body []byte
	for _, s := range spans {
		raw, err := proto.Marshal(s)
		if err != nil {
			return err
		}
		body = protowire.AppendBytes(protowire.AppendTag(body, spansField, protowire.BytesType), raw)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection is used again
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("the collector responded with the status %s", res.Status)
	}
	return nil
}
