package api_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/api"
	"comet/internal/orchestrator"
	"comet/store/storetest"
)

// serveWithTimeouts serves the API with time limits for reading and writing.
func serveWithTimeouts(t testing.TB, handler *api.Server, limit time.Duration) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ReadTimeout, server.Config.WriteTimeout = limit, limit
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(handler.Drain)
	return server.URL
}

// submit asks for work and returns the task's id.
func (h *fixture) submit(t testing.TB, body string) string {
	t.Helper()
	var task struct{ ID string }
	h.do(t, "POST", "/api/v1/tasks", body).decode(t, http.StatusAccepted, &task)
	return task.ID
}

func TestTaskOutput(t *testing.T) {
	t.Parallel()
	const log = "?stream=log&follow=true"
	address := func(id, query string) string { return "/api/v1/tasks/" + id + "/output" + query }
	tell := func(t *testing.T, h *fixture, id string, p orchestrator.Progress) {
		t.Helper()
		_, err := h.orchestrator.Progress(t.Context(), "reader", id, p)
		require.NoError(t, err)
	}

	runStreamTest(t, "IsStreamedUntilTheTaskHasEnded", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		id := h.submit(t, `{"capabilities":["read"]}`)
		s := h.openStream(t, h.admin, address(id, log)) // before there is any
		require.Equal(t, "text/plain; charset=utf-8", s.header.Get("Content-Type"))
		tell(t, h, id, orchestrator.Progress{Log: []byte("one,")})
		require.Equal(t, "one,", s.bytes(4))
		tell(t, h, id, orchestrator.Progress{Log: []byte("two,")})
		require.Equal(t, "two,", s.bytes(4))
		resumed := h.openStream(t, h.admin, address(id, log+"&from=4"))
		require.Equal(t, "two,", resumed.bytes(4))
		tell(t, h, id, orchestrator.Progress{Log: []byte("three")})
		_, err := h.orchestrator.Complete(t.Context(), "reader", id, orchestrator.Result{Output: []byte("done")})
		require.NoError(t, err)
		for _, s := range []*streamReader{s, resumed} {
			text, ended := s.rest()
			require.Equal(t, "three", text)
			require.True(t, ended)
		}
		require.Equal(t, "one,two,three", string(h.do(t, "GET", address(id, "?stream=log"), "").body))
		require.Equal(t, "done", string(h.do(t, "GET", address(id, "?follow=true"), "").body))
	})

	runStreamTest(t, "ContinuesWithTheNextAttempt", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		id := h.submit(t, `{"capabilities":["read"]}`)
		s := h.openStream(t, h.admin, address(id, log))
		tell(t, h, id, orchestrator.Progress{Log: []byte("first,")})
		require.Equal(t, "first,", s.bytes(6))
		_, err := h.orchestrator.Complete(t.Context(), "reader", id, orchestrator.Result{Failure: orchestrator.FailureResource, Text: "full"})
		require.NoError(t, err)
		h.db.Clock.Advance(time.Second) // the wait before the second one
		require.Eventually(t, func() bool {
			task, err := h.orchestrator.Task(t.Context(), id)
			return err == nil && task.Attempt == 2
		}, time.Minute, 5*time.Millisecond)
		tell(t, h, id, orchestrator.Progress{Log: []byte("second")})
		require.Equal(t, "second", s.bytes(6))
	})

	runStreamTest(t, "WaitsForMissingChunks", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		id := h.submit(t, `{"capabilities":["read"]}`)
		piece := func(start int64, text string) {
			tell(t, h, id, orchestrator.Progress{Chunk: &orchestrator.Chunk{Step: 1, Start: start, Data: []byte(text)}})
		}
		piece(0, "ab")
		piece(4, "ef")
		s := h.openStream(t, h.admin, address(id, "?follow=true"))
		require.Equal(t, "ab", s.bytes(2))
		require.Equal(t, "ab\x00\x00ef", string(h.do(t, "GET", address(id, ""), "").body), "what is asked for now cannot wait")
		require.Equal(t, "\x00e", string(h.do(t, "GET", address(id, ""), "", "Range", "bytes=3-4").body))
		piece(2, "cd")
		require.Equal(t, "cdef", s.bytes(4))
		_, err := h.orchestrator.Complete(t.Context(), "reader", id, orchestrator.Result{})
		require.NoError(t, err)
		text, ended := s.rest()
		require.Empty(t, text)
		require.True(t, ended)
	})

	runStreamTest(t, "WithSpansIsWrittenUnalignedUntilTheEnd", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		id := h.submit(t, `{"capabilities":["read"]}`)
		for i, text := range []string{"a", "first,", "second"} { // as PROTOCOL_V5 numbers them
			tell(t, h, id, orchestrator.Progress{Chunk: &orchestrator.Chunk{Step: 1, Start: int64(i), Span: 1, Data: []byte(text)}})
		}
		for _, some := range []string{"", "bytes=1-2"} {
			got := h.do(t, "GET", address(id, ""), "", "Range", some)
			require.Equal(t, http.StatusOK, got.status)
			require.Equal(t, "afirst,second", string(got.body))
			require.Equal(t, "none", got.header.Get("Accept-Ranges"))
		}
		_, err := h.orchestrator.Complete(t.Context(), "reader", id, orchestrator.Result{})
		require.NoError(t, err)
		got := h.do(t, "GET", address(id, ""), "", "Range", "bytes=1-5")
		require.Equal(t, http.StatusPartialContent, got.status)
		require.Equal(t, "first", string(got.body))
	})

	runStreamTest(t, "IsReadCompletelyAndInRanges", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		id := h.submit(t, `{"capabilities":["read"]}`)
		long := bytes.Repeat([]byte("0123456789abcdef"), 3<<16) // 3 MiB
		for start := 0; start < len(long); start += 1000 {
			end := min(start+1000, len(long))
			if start > 100_000 { // a long piece behind many short ones
				end = len(long)
			}
			tell(t, h, id, orchestrator.Progress{Chunk: &orchestrator.Chunk{Step: 1, Start: int64(start), Data: long[start:end]}})
			if end == len(long) {
				break
			}
		}
		_, err := h.orchestrator.Complete(t.Context(), "reader", id, orchestrator.Result{})
		require.NoError(t, err)
		got := h.do(t, "GET", address(id, ""), "", "Accept-Encoding", "gzip")
		require.True(t, bytes.Equal(long, got.body))
		require.Empty(t, got.header.Get("Content-Encoding"))
		require.Equal(t, "3145728", got.header.Get("Content-Length"))
		part := h.do(t, "GET", address(id, ""), "", "Range", "bytes=99990-2000009")
		require.Equal(t, http.StatusPartialContent, part.status)
		require.True(t, bytes.Equal(long[99990:2000010], part.body))
		head := h.do(t, "HEAD", address(id, ""), "")
		require.Equal(t, "3145728", head.header.Get("Content-Length"))
		require.Empty(t, head.body)
	})

	runStreamTest(t, "IsAbortedIfItIsIncomplete", fixtureOptions{}, func(t *testing.T, h *fixture) {
		joinReader(t, h)
		id := h.submit(t, `{"capabilities":["read"]}`)
		s := h.openStream(t, h.admin, address(id, log))
		tell(t, h, id, orchestrator.Progress{Log: []byte("one")})
		require.Equal(t, "one", s.bytes(3))
		h.server.Drain()
		text, ended := s.rest()
		require.Empty(t, text)
		require.False(t, ended, "the server stops, the task has not ended")
	})
}

func TestDrainEndsWaits(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		h := setup(t, db, fixtureOptions{startOrchestrator: true})
		joinReader(t, h)
		answers := make(chan response, 1)
		go func() {
			got, err := h.doContext(t.Context(), "POST", "/api/v1/tasks", `{"capabilities":["read"]}`, "Prefer", "wait=29")
			if err == nil {
				answers <- got
			}
			close(answers)
		}()
		require.Eventually(t, func() bool {
			return strings.Contains(string(h.do(t, "GET", "/api/v1/tasks", "").body), `"new"`)
		}, time.Minute, 5*time.Millisecond)
		h.server.Drain()
		require.Equal(t, http.StatusAccepted, (<-answers).status)
	})
}
