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
)

func TestMessagesOfOnePublisherArriveInOrder(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		heard := hear(t, b, "order")
		for i := range 2000 {
			require.NoError(t, b.Publish("order", []byte(strconv.Itoa(i))))
		}
		for i := range 2000 {
			require.Equal(t, strconv.Itoa(i), string(next(t, heard).Data))
		}
	})
}

func TestHandlersOfOneSubscriptionRunOneAfterTheOther(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		var inside, most atomic.Int32
		done := make(chan struct{}, 100)
		_, err := b.Subscribe("turns", func(bus.Message) {
			most.Store(max(most.Load(), inside.Add(1)))
			flush(t, b) // a handler that waits for others
			inside.Add(-1)
			done <- struct{}{}
		})
		require.NoError(t, err)
		for range 50 {
			require.NoError(t, b.Publish("turns", nil))
		}
		for range 50 {
			next(t, done)
		}
		require.EqualValues(t, 1, most.Load())
	})
}

func TestOneSlowHandlerHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		release := make(chan struct{})
		defer close(release)
		_, err := b.Subscribe("both", func(bus.Message) { <-release })
		require.NoError(t, err)
		heard := hear(t, b, "both")
		for range 10 {
			require.NoError(t, b.Publish("both", nil))
		}
		for range 10 {
			next(t, heard)
		}
	})
}

func TestAWildcardHearsWhatItMatches(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		heard := hear(t, b, string(bus.AgentOutboxes))
		for _, subject := range []string{
			bus.AgentOutbox("a-1"), bus.AgentInbox("a-1"), bus.WakeInbox("a-1"), bus.AgentOutbox("dots. and spaces"), "comet.agents.x.y.outbox", bus.AgentOutbox("end"),
		} {
			require.NoError(t, b.Publish(subject, nil))
		}
		for _, agent := range []string{"a-1", "dots. and spaces", "end"} {
			kind, name, ok := bus.Parse(next(t, heard).Subject)
			require.True(t, ok)
			require.Equal(t, bus.AgentOutboxes, kind)
			require.Equal(t, agent, name)
		}
		require.Empty(t, heard)
	})
}

func TestAQueueGroupGetsEachMessageOnce(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		const messages = 500
		heard := make(chan string, 3*messages)
		for range 3 {
			_, err := b.QueueSubscribe("work", "workers", func(m bus.Message) { heard <- string(m.Data) })
			require.NoError(t, err)
		}
		everybody := hear(t, b, "work")
		for i := range messages {
			require.NoError(t, b.Publish("work", []byte(strconv.Itoa(i))))
		}
		seen := map[string]bool{}
		for range messages {
			m := next(t, heard)
			require.False(t, seen[m], "%s came twice", m)
			seen[m] = true
			next(t, everybody)
		}
		flush(t, b)
		require.Empty(t, heard)
	})
}

func TestARequestIsAnswered(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
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

func TestARequestThatIsNotAnsweredEnds(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		_, err := b.Request(t.Context(), "nobody", nil)
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)

		asked := hear(t, b, "silent")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-asked
			cancel()
		}()
		_, err = b.Request(ctx, "silent", nil)
		require.ErrorIs(t, err, context.Canceled)

		ctx, cancel = context.WithTimeout(t.Context(), 1)
		defer cancel()
		_, err = b.Request(ctx, "silent", nil)
		require.True(t, errs.Is(err, errs.Timeout), "%v", err)
	})
}

func TestAMessageThatIsNoRequestCannotBeAnswered(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		heard := hear(t, b, "plain")
		require.NoError(t, b.Publish("plain", nil))
		require.True(t, errs.Is(next(t, heard).Respond(nil), errs.InvalidRequest))
	})
}

func TestASubscriptionSurvivesTheLossOfTheServer(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		gaps := listen(b)
		heard := hear(t, b, "still.*")
		_, err := b.QueueSubscribe("still.queued", "q", func(m bus.Message) { require.NoError(t, m.Respond([]byte("yes"))) })
		require.NoError(t, err)
		require.NoError(t, b.Publish("still.there", nil))
		next(t, heard)

		for range 3 {
			g.outage(t, b)
			require.Equal(t, bus.Gap{Reason: bus.Reconnected}, next(t, gaps))
			require.NoError(t, b.Publish("still.there", nil))
			require.Equal(t, "still.there", next(t, heard).Subject)
			_, err := b.Request(t.Context(), "still.queued", nil)
			require.NoError(t, err)
			require.Equal(t, "still.queued", next(t, heard).Subject)
		}
		require.InDelta(t, 3, metric(t, b, "comet_bus_reconnects_total"), 0)
		require.Empty(t, gaps, "one outage is one gap")
	})
}

// When OnGap is called, the server has the subscriptions again: whoever looks at SQL then
// misses nothing that another connection publishes afterwards.
func TestAfterAGapNothingFallsBetween(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		heard := hear(t, b, "between")
		looked := make(chan struct{}, 10)
		b.OnGap(func(bus.Gap) {
			flush(t, b)
			looked <- struct{}{}
		})
		for range 5 {
			g.outage(t, b)
			next(t, looked)
			require.NoError(t, b.Publish("between", nil))
			next(t, heard)
		}
	})
}

func TestStopDeliversWhatWasPublishedBefore(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
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

func TestStopGivesUpWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		entered, release := make(chan struct{}), make(chan struct{})
		_, err := b.Subscribe("stuck", func(bus.Message) {
			close(entered)
			<-release
		})
		require.NoError(t, err)
		require.NoError(t, b.Publish("stuck", nil))
		next(t, entered)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, b.Stop(ctx), context.Canceled)
		close(release)
		stop(t, b)
	})
}

func TestStartAndStopMayBeRepeatedAndRaced(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b, err := bus.New(&bus.Options{URL: g.url})
		require.NoError(t, err)
		require.True(t, errs.Is(b.Check(t.Context()), errs.Unavailable), "it does not run yet")
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

		never, err := bus.New(&bus.Options{URL: g.url})
		require.NoError(t, err)
		require.NoError(t, never.Stop(t.Context()))
	})
}

func TestASlowHandlerLosesMessagesAndIsTold(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t, func(o *bus.Options) { o.PendingMessages = 10 })
		gaps := listen(b)
		entered, release := make(chan struct{}, 200), make(chan struct{})
		_, err := b.Subscribe("slow", func(bus.Message) {
			entered <- struct{}{}
			<-release
		})
		require.NoError(t, err)
		require.NoError(t, b.Publish("slow", nil))
		next(t, entered)
		flood := func(messages int) {
			for range messages {
				require.NoError(t, b.Publish("slow", nil))
			}
			flush(t, b)
		}
		want := bus.Gap{Reason: bus.Dropped, Subject: "slow"}
		flood(20)
		require.Equal(t, want, next(t, gaps), "at the first message that is dropped")
		flood(80)
		require.Empty(t, gaps, "not again as long as it looks at nothing")
		close(release)
		require.Equal(t, want, next(t, gaps), "when the handler is through with the rest")
		require.InDelta(t, 91, metric(t, b, "comet_bus_messages_dropped_total"), 0)
		require.Len(t, entered, 9)

		require.NoError(t, b.Publish("slow", nil))
		next(t, entered)
	})
}

func TestWhatWaitsIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t, func(o *bus.Options) { o.PendingBytes = 10_000 })
		gaps := listen(b)
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
		require.Equal(t, bus.Gap{Reason: bus.Dropped, Subject: "big"}, next(t, gaps))
		close(release)
		for range 10 {
			next(t, entered)
		}
		stop(t, b)
		require.Empty(t, entered)
	})
}

func TestUnsubscribeEndsTheCalls(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		var calls atomic.Int32
		s, err := b.Subscribe("once", func(bus.Message) { calls.Add(1) })
		require.NoError(t, err)
		s.Unsubscribe()
		s.Unsubscribe()
		heard := hear(t, b, "once")
		require.NoError(t, b.Publish("once", nil))
		next(t, heard)
		g.outage(t, b)
		answers(t, b)
		require.NoError(t, b.Publish("once", nil))
		next(t, heard)
		require.Zero(t, calls.Load())
	})
}

func TestOnGapEndsWhenItIsStopped(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		var calls atomic.Int32
		end := b.OnGap(func(bus.Gap) { calls.Add(1) })
		gaps := listen(b)
		g.outage(t, b)
		next(t, gaps)
		end()
		end()
		g.outage(t, b)
		next(t, gaps)
		require.EqualValues(t, 1, calls.Load())
	})
}

func TestAMessageThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		heard := hear(t, b, "large")
		require.NoError(t, b.Publish("large", make([]byte, 1<<20)))
		require.Len(t, next(t, heard).Data, 1<<20)
		err := b.Publish("large", make([]byte, 1<<20+1))
		require.True(t, errs.Is(err, errs.BodyTooLarge), "%v", err)
		require.ErrorContains(t, err, "1048577 bytes")
		_, err = b.Request(t.Context(), "large", make([]byte, 1<<20+1))
		require.True(t, errs.Is(err, errs.BodyTooLarge), "%v", err)
		require.NoError(t, b.Check(t.Context()), "the connection is none the worse")
	})
}

func TestAPublishersBufferMayBeUsedAgain(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		one, two := hear(t, b, "shared"), hear(t, b, "shared")
		data := []byte("first")
		require.NoError(t, b.Publish("shared", data))
		copy(data, "other")
		first := next(t, one).Data
		require.Equal(t, "first", string(first))
		copy(first, "mine!")
		require.Equal(t, "first", string(next(t, two).Data), "each has its own")
	})
}

func TestAPanicCostsOneMessage(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
		heard := make(chan string, 10)
		_, err := b.Subscribe("panic", func(m bus.Message) {
			if len(m.Data) == 0 {
				panic("on purpose")
			}
			heard <- string(m.Data)
		})
		require.NoError(t, err)
		require.NoError(t, b.Publish("panic", nil))
		require.NoError(t, b.Publish("panic", []byte("next")))
		require.Equal(t, "next", next(t, heard))
	})
}

func TestWhatIsNoSubjectIsRefused(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(t *testing.T, g ground) {
		b := g.open(t)
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
