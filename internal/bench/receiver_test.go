package bench

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// receiver is a server that accepts every delivery. It stores the first keep requests for repost.
type receiver struct {
	url  string
	got  atomic.Int64
	keep int

	mu   sync.Mutex
	kept []posted
}

// posted is a request that was received.
type posted struct {
	header http.Header
	body   []byte
}

func openReceiver(b *testing.B, keep int) *receiver {
	b.Helper()
	r := &receiver{keep: keep}
	r.url = "http://" + serve(b, r) + "/webhook"
	return r
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if n := r.got.Add(1); n <= int64(r.keep) {
		r.mu.Lock()
		r.kept = append(r.kept, posted{req.Header.Clone(), body})
		r.mu.Unlock()
	}
	w.WriteHeader(http.StatusNoContent)
}

// requests returns the stored requests without the headers that the client adds.
func (r *receiver) requests() []posted {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.kept {
		p.header.Del("Content-Length")
		p.header.Del("Accept-Encoding")
	}
	return r.kept
}

// repost sends the same requests with net/http over kept-alive connections.
func repost(client *http.Client, url string, requests []posted, callers int) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	failures := make([]error, callers)
	for c := range callers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(requests)) && failures[c] == nil; i = next.Add(1) - 1 {
				failures[c] = requests[i].post(client, url)
			}
		})
	}
	wg.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

func (p posted) post(client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(detached(), http.MethodPost, url, bytes.NewReader(p.body))
	if err != nil {
		return err
	}
	req.Header = p.header
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the receiver responds with %s", resp.Status)
	}
	return nil
}
