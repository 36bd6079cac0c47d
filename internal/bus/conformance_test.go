package bus_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/errs"
	"comet/internal/testkit"
)

func TestMessagesOfOnePublisherArriveInOrder(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		received := receive(t, b, "order")
		for i := range 2000 {
			require.NoError(t, b.Publish("order", []byte(strconv.Itoa(i))))
		}
		for i := range 2000 {
			require.Equal(t, strconv.Itoa(i), string(testkit.Receive(t, received).Data))
		}
	})
}

func TestHandlerCallsOfASubscriptionAreSerial(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		var inside, most atomic.Int32
		done := make(chan struct{}, 100)
		_, err := b.Subscribe("turns", func(bus.Message) {
			most.Store(max(most.Load(), inside.Add(1)))
			flush(t, b) // a handler that waits
			inside.Add(-1)
			done <- struct{}{}
		})
		require.NoError(t, err)
		for range 50 {
			require.NoError(t, b.Publish("turns", nil))
		}
		for range 50 {
			testkit.Receive(t, done)
		}
		require.EqualValues(t, 1, most.Load())
	})
}

func TestASlowHandlerDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		release := make(chan struct{})
		defer close(release)
		_, err := b.Subscribe("both", func(bus.Message) { <-release })
		require.NoError(t, err)
		received := receive(t, b, "both")
		for range 10 {
			require.NoError(t, b.Publish("both", nil))
		}
		for range 10 {
			testkit.Receive(t, received)
		}
	})
}

func TestAWildcardReceivesMatchingSubjects(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		received := receive(t, b, string(bus.AgentOutboxes))
		for _, subject := range []string{
			bus.AgentOutboxes.Of("a-1"), bus.AgentInboxes.Of("a-1"), bus.WakeInboxes.Of("a-1"), bus.AgentOutboxes.Of("dots. and spaces"), "comet.agents.x.y.outbox", bus.AgentOutboxes.Of("end"),
		} {
			require.NoError(t, b.Publish(subject, nil))
		}
		for _, agent := range []string{"a-1", "dots. and spaces", "end"} {
			name, ok := bus.AgentOutboxes.NameIn(testkit.Receive(t, received).Subject)
			require.True(t, ok)
			require.Equal(t, agent, name)
		}
		require.Empty(t, received)
	})
}

func TestAQueueGroupGetsEachMessageOnce(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		const messages = 500
		received := make(chan string, 3*messages)
		for range 3 {
			_, err := b.QueueSubscribe("work", "workers", func(m bus.Message) { received <- string(m.Data) })
			require.NoError(t, err)
		}
		all := receive(t, b, "work")
		for i := range messages {
			require.NoError(t, b.Publish("work", []byte(strconv.Itoa(i))))
		}
		seen := map[string]bool{}
		for range messages {
			m := testkit.Receive(t, received)
			require.False(t, seen[m], "%s was received twice", m)
			seen[m] = true
			testkit.Receive(t, all)
		}
		flush(t, b)
		require.Empty(t, received)
	})
}

func TestRequestReturnsTheResponse(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		_, err := b.Subscribe("double", func(m bus.Message) {
			require.NoError(t, m.Respond(append(m.Data, m.Data...)))
		})
		require.NoError(t, err)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				got, err := b.Request(t.Context(), "double", fmt.Appendf(nil, "<%d>", i))
				require.NoError(t, err)
				require.Equal(t, fmt.Sprintf("<%d><%d>", i, i), string(got.Data))
			})
		}
		all.Wait()
	})
}

func TestRespondToAPlainMessageFails(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		received := receive(t, b, "plain")
		require.NoError(t, b.Publish("plain", nil))
		require.True(t, errs.Is(testkit.Receive(t, received).Respond(nil), errs.InvalidRequest))
	})
}

func TestASubscriptionSurvivesTheLossOfTheServer(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		gaps := gapsOf(b)
		received := receive(t, b, "still.*")
		_, err := b.QueueSubscribe("still.queued", "q", func(m bus.Message) { require.NoError(t, m.Respond([]byte("yes"))) })
		require.NoError(t, err)
		require.NoError(t, b.Publish("still.there", nil))
		testkit.Receive(t, received)

		for range 3 {
			f.outage(t, b)
			testkit.Receive(t, gaps)
			require.NoError(t, b.Publish("still.there", nil))
			require.Equal(t, "still.there", testkit.Receive(t, received).Subject)
			_, err := b.Request(t.Context(), "still.queued", nil)
			require.NoError(t, err)
			require.Equal(t, "still.queued", testkit.Receive(t, received).Subject)
		}
		require.InDelta(t, 3, metric(t, b, "comet_bus_reconnects_total"), 0)
		require.Empty(t, gaps, "one outage is one gap")
	})
}

// TestNoMessageIsLostAfterOnGap checks that the server has the subscriptions again when OnGap is
// called, so that a reader of SQL misses no message that is published afterwards.
func TestNoMessageIsLostAfterOnGap(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		received := receive(t, b, "between")
		read := make(chan struct{}, 10)
		b.OnGap(func() {
			flush(t, b)
			read <- struct{}{}
		})
		for range 5 {
			f.outage(t, b)
			testkit.Receive(t, read)
			require.NoError(t, b.Publish("between", nil))
			testkit.Receive(t, received)
		}
	})
}

func TestStopHandlesPublishedMessages(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		var handled atomic.Int32
		first := make(chan struct{})
		_, err := b.Subscribe("last", func(bus.Message) {
			<-first
			handled.Add(1)
		})
		require.NoError(t, err)
		for range 1000 {
			require.NoError(t, b.Publish("last", nil))
		}
		go close(first)
		stop(t, b)
		require.EqualValues(t, 1000, handled.Load())
		err = b.Publish("last", nil)
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	})
}

func TestStopReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		entered, release := make(chan struct{}), make(chan struct{})
		_, err := b.Subscribe("stuck", func(bus.Message) {
			close(entered)
			<-release
		})
		require.NoError(t, err)
		require.NoError(t, b.Publish("stuck", nil))
		testkit.Receive(t, entered)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, b.Stop(ctx), context.Canceled)
		close(release)
		stop(t, b)
	})
}

func TestStartAndStopMayBeRepeatedConcurrently(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b, err := bus.New(&bus.Options{URL: f.url})
		require.NoError(t, err)
		require.True(t, errs.Is(b.Check(t.Context()), errs.Unavailable), "it has not started")
		_, err = b.Subscribe("a", func(bus.Message) {})
		require.True(t, errs.Is(err, errs.Unavailable))
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { require.NoError(t, b.Start(t.Context())) })
		}
		all.Wait()
		require.NoError(t, b.Check(t.Context()))
		for range 8 {
			all.Go(func() { require.NoError(t, b.Stop(t.Context())) })
		}
		all.Wait()
		require.True(t, errs.Is(b.Check(t.Context()), errs.Unavailable))
		require.ErrorContains(t, b.Start(t.Context()), "stopped")

		never, err := bus.New(&bus.Options{URL: f.url})
		require.NoError(t, err)
		require.NoError(t, never.Stop(t.Context()))
	})
}

func TestDroppedMessagesAreReportedAsAGap(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t, func(o *bus.Options) { o.PendingMessages = 10 })
		gaps := gapsOf(b)
		entered, release := make(chan struct{}, 200), make(chan struct{})
		_, err := b.Subscribe("slow", func(bus.Message) {
			entered <- struct{}{}
			<-release
		})
		require.NoError(t, err)
		require.NoError(t, b.Publish("slow", nil))
		testkit.Receive(t, entered)
		flood := func(messages int) {
			for range messages {
				require.NoError(t, b.Publish("slow", nil))
			}
			flush(t, b)
		}
		flood(20)
		testkit.Receive(t, gaps) // at the first dropped message
		flood(80)
		require.Empty(t, gaps, "not again while the handler is blocked")
		close(release)
		testkit.Receive(t, gaps) // when the handler has processed its backlog
		require.InDelta(t, 91, metric(t, b, "comet_bus_messages_dropped_total"), 0)
		require.Len(t, entered, 9)

		require.NoError(t, b.Publish("slow", nil))
		testkit.Receive(t, entered)
	})
}

func TestTheBacklogIsLimitedInBytes(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t, func(o *bus.Options) { o.PendingBytes = 10_000 })
		gaps := gapsOf(b)
		entered, release := make(chan struct{}, 200), make(chan struct{})
		_, err := b.Subscribe("big", func(bus.Message) {
			entered <- struct{}{}
			<-release
		})
		require.NoError(t, err)
		for range 100 {
			require.NoError(t, b.Publish("big", make([]byte, 1000)))
		}
		flush(t, b)
		testkit.Receive(t, gaps)
		close(release)
		for range 10 {
			testkit.Receive(t, entered)
		}
		stop(t, b)
		require.Empty(t, entered)
	})
}

func TestUnsubscribeEndsTheCalls(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		var calls atomic.Int32
		s, err := b.Subscribe("once", func(bus.Message) { calls.Add(1) })
		require.NoError(t, err)
		s.Unsubscribe()
		s.Unsubscribe()
		received := receive(t, b, "once")
		require.NoError(t, b.Publish("once", nil))
		testkit.Receive(t, received)
		f.outage(t, b)
		waitConnected(t, b)
		require.NoError(t, b.Publish("once", nil))
		testkit.Receive(t, received)
		require.Zero(t, calls.Load())
	})
}

func TestStopOfOnGapEndsTheCalls(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		var calls atomic.Int32
		end := b.OnGap(func() { calls.Add(1) })
		gaps := gapsOf(b)
		f.outage(t, b)
		testkit.Receive(t, gaps)
		end()
		end()
		f.outage(t, b)
		testkit.Receive(t, gaps)
		require.EqualValues(t, 1, calls.Load())
	})
}

func TestAMessageOverTheLimitIsRejected(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		received := receive(t, b, "large")
		require.NoError(t, b.Publish("large", make([]byte, 1<<20)))
		require.Len(t, testkit.Receive(t, received).Data, 1<<20)
		err := b.Publish("large", make([]byte, 1<<20+1))
		require.True(t, errs.Is(err, errs.BodyTooLarge), "%v", err)
		require.ErrorContains(t, err, "1048577 bytes")
		require.NoError(t, b.Check(t.Context()), "the connection is not affected")
	})
}

func TestPublishedDataMayBeReused(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		one, two := receive(t, b, "shared"), receive(t, b, "shared")
		data := []byte("first")
		require.NoError(t, b.Publish("shared", data))
		copy(data, "other")
		first := testkit.Receive(t, one).Data
		require.Equal(t, "first", string(first))
		copy(first, "mine!")
		require.Equal(t, "first", string(testkit.Receive(t, two).Data), "each subscription has its own copy")
	})
}

func TestAPanicLosesOneMessage(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		received := make(chan string, 10)
		_, err := b.Subscribe("panic", func(m bus.Message) {
			if len(m.Data) == 0 {
				panic("on purpose")
			}
			received <- string(m.Data)
		})
		require.NoError(t, err)
		require.NoError(t, b.Publish("panic", nil))
		require.NoError(t, b.Publish("panic", []byte("next")))
		require.Equal(t, "next", testkit.Receive(t, received))
	})
}

func TestInvalidSubjectsAreRejected(t *testing.T) {
	t.Parallel()
	testBoth(t, func(t *testing.T, f fixture) {
		b := f.open(t)
		for _, subject := range []string{"", ".", "a.", "a..b", "a b", "a\r\nPUB b 0", "a*", "a.>.b", "a\x00"} {
			require.True(t, errs.Is(b.Publish(subject, nil), errs.InvalidRequest), "%q", subject)
			_, err := b.Subscribe(subject, func(bus.Message) {})
			require.True(t, errs.Is(err, errs.InvalidRequest), "%q", subject)
			_, err = b.QueueSubscribe("a", subject, func(bus.Message) {})
			require.True(t, errs.Is(err, errs.InvalidRequest), "%q", subject)
		}
		require.True(t, errs.Is(b.Publish("a.*", nil), errs.InvalidRequest))
		require.True(t, errs.Is(b.Publish("a.>", nil), errs.InvalidRequest))
		require.NoError(t, b.Check(t.Context()))
	})
}
