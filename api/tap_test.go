package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// streamReader is a stream that a test reads.
type streamReader struct {
	*bufio.Reader

	t      testing.TB
	header http.Header
	close  func()
}

// openStream opens a stream with a token. A test that waits for nothing ends after a minute.
func (h *fixture) openStream(t testing.TB, secret, target string, headers ...string) *streamReader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+target, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+secret)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := h.client.RoundTrip(req)
	for ; err != nil && ctx.Err() == nil; res, err = h.client.RoundTrip(req) { // a server with short time-outs may close a connection before it has read the request
		continue
	}
	require.NoError(t, err)
	shut := func() { _ = res.Body.Close() }
	t.Cleanup(shut)
	require.Equal(t, http.StatusOK, res.StatusCode)
	return &streamReader{Reader: bufio.NewReader(res.Body), t: t, header: res.Header, close: shut}
}

// streamMessage is one message of a stream of events.
type streamMessage struct {
	id, event, comment, retry string
	data                      struct {
		ID       string
		Position int64
		Type     models.EventType
		Key      string
		At       time.Time
		Data     json.RawMessage
	}
	raw string
}

// next returns the next message.
func (s *streamReader) next() (m streamMessage) {
	s.t.Helper()
	for {
		line, err := s.ReadString('\n')
		require.NoError(s.t, err)
		if line = strings.TrimSuffix(line, "\n"); line == "" {
			return m
		}
		name, value, ok := strings.Cut(line, ":")
		require.True(s.t, ok, line)
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "":
			m.comment = value
		case "id":
			m.id = value
		case "event":
			m.event = value
		case "retry":
			m.retry = value
		case "data":
			m.raw = value
			require.NoError(s.t, json.Unmarshal([]byte(value), &m.data), value)
		default:
			require.Fail(s.t, "a line that is none of the format", line)
		}
	}
}

// event returns the next message that is an event.
func (s *streamReader) event() streamMessage {
	s.t.Helper()
	for {
		if m := s.next(); m.event != "" {
			return m
		}
	}
}

// rest reads to the end and reports whether the response was complete.
func (s *streamReader) rest() (text string, ended bool) {
	s.t.Helper()
	body, err := io.ReadAll(s)
	if err != nil {
		require.ErrorIs(s.t, err, io.ErrUnexpectedEOF)
	}
	return string(body), err == nil
}

// bytes reads n bytes.
func (s *streamReader) bytes(n int) string {
	s.t.Helper()
	p := make([]byte, n)
	_, err := io.ReadFull(s, p)
	require.NoError(s.t, err)
	return string(p)
}
