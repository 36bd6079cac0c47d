package webhooks_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestZZBench(t *testing.T) {
	name := os.Getenv("ZZ")
	if name == "" {
		return
	}
	n := 20000
	if s := os.Getenv("ZZN"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	var count atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		count.Add(1)
	}))
	defer srv.Close()
	db := storetest.Open(t, name)
	var commits, took atomic.Int64
	if name == "postgres" {
		o := db.Options
		o.OnCommit = func(n int, d time.Duration) { commits.Add(1); took.Add(int64(d)) }
		st, err := store.Open(t.Context(), o)
		require.NoError(t, err)
		defer st.Close()
		cp := *db
		cp.Store = st
		db = &cp
	}
	opts := options()
	opts.Poll = 500 * time.Millisecond
	h := newHouse(t, db, opts)
	h.hook(t, srv.URL, ordIf)
	data := map[string]any{"id": "finance-personal", "version": 7, "actor": "ops", "changes": []any{map[string]any{"field": "name", "from": "a", "to": "b"}}}
	for i := range n / 500 {
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			for j := range 500 {
				if err := tx.Emit(models.EventAgentUpdated, fmt.Sprint("agent-", (i*500+j)%1000), data); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	require.Eventually(t, func() bool { p, _ := db.LastPosition(t.Context()); return p == int64(n) }, time.Minute, time.Millisecond)
	raw := func() float64 {
		count.Store(0)
		tr := &http.Transport{MaxIdleConnsPerHost: 64}
		defer tr.CloseIdleConnections()
		c := &http.Client{Transport: tr}
		body := bytes.Repeat([]byte("x"), 230)
		begun := time.Now()
		var wg sync.WaitGroup
		var left atomic.Int64
		left.Store(int64(n))
		for range 16 {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					resp, err := c.Post(srv.URL, "application/json", bytes.NewReader(body))
					if err != nil {
						panic(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		}
		wg.Wait()
		return float64(n) / time.Since(begun).Seconds()
	}
	cpu := func() float64 {
		var r syscall.Rusage
		_ = syscall.Getrusage(0, &r)
		return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e3 / float64(n)
	}
	raw()
	c0 := cpu()
	r1 := raw()
	c1 := cpu()
	count.Store(0)
	if f := os.Getenv("ZZPROF"); f != "" {
		o, _ := os.Create(f)
		_ = pprof.StartCPUProfile(o)
		defer pprof.StopCPUProfile()
	}
	c2 := cpu()
	begun := time.Now()
	commits.Store(0)
	took.Store(0)
	h.start(t)
	for count.Load() < int64(n) {
		<-time.After(time.Millisecond)
	}
	rate := float64(n) / time.Since(begun).Seconds()
	c3 := cpu()
	all := float64(n) / time.Since(begun).Seconds()
	fmt.Printf("cpu us/req raw %.1f engine %.1f ratio %.2f\n", c1-c0, c3-c2, (c1-c0)/(c3-c2))
	fmt.Println("commits", commits.Load(), "avg", time.Duration(took.Load()/max(1, commits.Load())))
	r2 := raw()
	fmt.Printf("raw %.0f %.0f engine %.0f stored %.0f ratio %.2f\n", r1, r2, rate, all, rate/((r1+r2)/2))
}

func ordIf(d *models.WebhookDraft) {
	if os.Getenv("ZZORD") != "" {
		ordered(d)
	}
}
