package transport

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"comet/internal/protocol"
)

// message is a message of a pipeline that a test controls.
type message struct {
	name  string
	order protocol.Order
	steps chan step
}

type step int

const (
	placeOrdered   step = iota // its first transaction is queued
	placeUnordered             // its first transaction has begun
	finish
)

// pipelineRun runs messages in a bubble of synctest and records what happens.
type pipelineRun struct {
	*pipeline
	mu  sync.Mutex
	log []string
}

func (r *pipelineRun) record(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, what)
}

// take waits until nothing happens any more and returns what has happened.
func (r *pipelineRun) take() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	log := r.log
	r.log = nil
	return log
}

// add adds messages. It is called by one goroutine at a time.
func (r *pipelineRun) add(t *testing.T, length int, messages ...*message) {
	t.Helper()
	for _, m := range messages {
		m.steps = make(chan step, 3)
		err := r.pipeline.add(t.Context(), m.order, length, func(placed func(bool)) func() {
			r.record("begin " + m.name)
			for s := range m.steps {
				if s == finish {
					break
				}
				placed(s == placeOrdered)
			}
			return func() { r.record("reply " + m.name) }
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// runPipeline runs one case in a bubble.
func runPipeline(t *testing.T, name string, fn func(t *testing.T, r *pipelineRun)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := &pipelineRun{pipeline: newPipeline()}
			fn(t, r)
			r.running.Wait()
		})
	})
}

func TestPipeline(t *testing.T) {
	t.Parallel()
	free := protocol.Order{Independent: true}
	key := protocol.Order{Key: "k"}
	report := protocol.Order{Key: "k", Atomic: true, Blind: true}

	runPipeline(t, "a message begins when the one before it has its place", func(t *testing.T, r *pipelineRun) {
		a, b, c := &message{name: "a", order: protocol.Order{Key: "a"}}, &message{name: "b", order: key}, &message{name: "c", order: free}
		r.add(t, 1, a, b, c)
		require.Equal(t, []string{"begin a"}, r.take())
		a.steps <- placeUnordered
		require.Equal(t, []string{"begin b"}, r.take())
		b.steps <- finish // without a transaction
		require.Equal(t, []string{"begin c"}, r.take())
		c.steps <- finish
		require.Empty(t, r.take(), "replies are written in order")
		a.steps <- finish
		require.Equal(t, []string{"reply a", "reply b", "reply c"}, r.take())
	})
	for name, order := range map[string]protocol.Order{"a pipelined message": free, "a message that is processed alone": {}} {
		runPipeline(t, "a delivery follows the reply to "+name, func(t *testing.T, r *pipelineRun) {
			r.waitForReplies(t.Context()) // there is no message
			a := &message{name: "a", order: order}
			added := make(chan struct{})
			go func() {
				defer close(added)
				r.add(t, 1, a)
			}()
			require.Equal(t, []string{"begin a"}, r.take())
			go func() {
				r.waitForReplies(t.Context())
				r.record("deliver")
			}()
			require.Empty(t, r.take())
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			r.waitForReplies(ended)
			a.steps <- finish
			require.Equal(t, []string{"reply a", "deliver"}, r.take())
			<-added
		})
	}
	runPipeline(t, "messages with a key are processed one after the other", func(t *testing.T, r *pipelineRun) {
		a, b, c := &message{name: "a", order: key}, &message{name: "b", order: report}, &message{name: "c", order: key}
		r.add(t, 1, a, b, c)
		a.steps <- placeOrdered
		require.Equal(t, []string{"begin a"}, r.take(), "a is not atomic")
		a.steps <- finish
		require.Equal(t, []string{"begin b", "reply a"}, sorted(r.take()))
		b.steps <- placeOrdered
		require.Empty(t, r.take(), "c is not blind")
		b.steps <- finish
		require.Equal(t, []string{"begin c", "reply b"}, sorted(r.take()))
		c.steps <- finish
		require.Equal(t, []string{"reply c"}, r.take())
	})
	runPipeline(t, "reports with a key overlap where the database orders transactions", func(t *testing.T, r *pipelineRun) {
		a, b, c := &message{name: "a", order: report}, &message{name: "b", order: report}, &message{name: "c", order: report}
		r.add(t, 1, a, b, c)
		a.steps <- placeOrdered
		require.Equal(t, []string{"begin a", "begin b"}, r.take())
		b.steps <- placeUnordered
		require.Empty(t, r.take())
		b.steps <- finish
		require.Empty(t, r.take(), "b has ended, and a has not")
		a.steps <- finish
		require.Equal(t, []string{"begin c", "reply a", "reply b"}, sorted(r.take()))
		c.steps <- finish
	})
	runPipeline(t, "a message that fails at once does not hide an earlier one with its key", func(t *testing.T, r *pipelineRun) {
		a, b, c := &message{name: "a", order: report}, &message{name: "b", order: report}, &message{name: "c", order: key}
		r.add(t, 1, a, b, c)
		a.steps <- placeOrdered
		b.steps <- finish
		require.Equal(t, []string{"begin a", "begin b"}, r.take())
		a.steps <- finish
		require.Equal(t, []string{"begin c", "reply a", "reply b"}, sorted(r.take()))
		c.steps <- finish
	})
	runPipeline(t, "a message with a key may be about what an independent one creates", func(t *testing.T, r *pipelineRun) {
		a, b, c := &message{name: "a", order: free}, &message{name: "b", order: free}, &message{name: "c", order: report}
		r.add(t, 1, a, b, c)
		a.steps <- placeOrdered
		b.steps <- finish
		require.Equal(t, []string{"begin a", "begin b"}, r.take(), "c waits for both")
		a.steps <- finish
		require.Equal(t, []string{"begin c", "reply a", "reply b"}, sorted(r.take()))
		c.steps <- finish
	})
	runPipeline(t, "a message without order is processed alone", func(t *testing.T, r *pipelineRun) {
		a, alone, b := &message{name: "a", order: free}, &message{name: "alone"}, &message{name: "b", order: free}
		r.add(t, 1, a)
		go r.add(t, 1, alone, b)
		a.steps <- placeOrdered
		require.Equal(t, []string{"begin a"}, r.take())
		a.steps <- finish
		require.Equal(t, []string{"reply a", "begin alone"}, r.take())
		alone.steps <- finish
		require.Equal(t, []string{"reply alone", "begin b"}, r.take())
		b.steps <- finish
	})
	for what, tt := range map[string]struct{ messages, length int }{
		"messages": {maxPipelined, 1}, "bytes": {4, maxPipelinedBytes / 4},
	} {
		runPipeline(t, "nothing is read while too many "+what+" are in progress", func(t *testing.T, r *pipelineRun) {
			all := make([]*message, tt.messages+1)
			for i := range all {
				all[i] = &message{name: strconv.Itoa(i), order: protocol.Order{Key: strconv.Itoa(i)}}
			}
			read := make(chan struct{})
			go func() {
				r.add(t, tt.length, all...)
				close(read)
			}()
			for _, m := range all[:tt.messages] {
				synctest.Wait()
				m.steps <- placeOrdered
			}
			all[1].steps <- finish
			require.Len(t, r.take(), tt.messages, "the first has no reply yet, so the last does not begin")
			all[0].steps <- finish
			<-read
			require.Contains(t, r.take(), "reply 1")
			for _, m := range all[2:] {
				m.steps <- finish
			}
		})
	}
	runPipeline(t, "a connection with many keys forgets them", func(t *testing.T, r *pipelineRun) {
		for i := range 100 * maxPipelined {
			m := &message{name: "m", order: protocol.Order{Key: strconv.Itoa(i)}}
			r.add(t, 1, m)
			m.steps <- finish
			synctest.Wait()
		}
		require.LessOrEqual(t, len(r.byKey), 2*maxPipelined)
	})
}

func sorted(log []string) []string {
	slices.Sort(log)
	return log
}
