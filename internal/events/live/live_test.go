package live_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events/live"
	"comet/models"
)

// TestEvents: two replicas publish the last event of each key once a second, and a subscriber that does not read loses
// events without delaying others.
func TestEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var replicas [2]*live.Events
		messages := 0
		for i := range replicas {
			replicas[i] = live.New(func(message []byte) {
				messages++
				for _, r := range replicas {
					r.Receive(message)
				}
			})
		}
		for _, r := range replicas {
			require.NoError(t, r.Start(t.Context()))
			defer func() { require.NoError(t, r.Stop(context.Background())) }()
		}
		reader, stop := replicas[1].Subscribe()
		defer stop()
		slow, stopSlow := replicas[0].Subscribe()
		synctest.Wait()
		at := time.Now().UTC()
		version := int64(0)
		mark := func(key string, value int) {
			version++
			require.NoError(t, replicas[0].Mark(live.UsageChanged, key, version, at, value))
		}
		for i := range 1000 {
			mark("b", i)
			mark("a", i)
		}
		require.ElementsMatch(t, []models.Event{{Type: live.UsageChanged, Key: "a", At: at, Data: []byte("999")}, {Type: live.UsageChanged, Key: "b", At: at, Data: []byte("999")}}, <-reader)
		require.Equal(t, time.Second, time.Since(at), "once a second")
		require.Equal(t, 1, messages)
		idle, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		<-idle.Done()
		require.Equal(t, 1, messages, "nothing has changed")

		for i := range 2 * cap(slow) {
			mark("a", i)
			require.Equal(t, fmt.Sprint(i), string((<-reader)[0].Data))
		}
		require.Len(t, slow, cap(slow), "the rest is lost")
		stopSlow()
		for i := range 12_000 {
			mark(fmt.Sprintf("%05d", i), i)
		}
		total := 0
		for range 20 {
			total += len(<-reader)
		}
		require.Equal(t, 10_000, total, "at most 10,000 agents wait, in messages of 500, and the buffer holds them all")
		require.Error(t, replicas[0].Mark(live.UsageChanged, "a", 1, at, make(chan int)))
		replicas[0].Receive([]byte("{"))
		var none *live.Events
		never, end := none.Subscribe()
		require.Nil(t, never)
		end()
	})
}

// TestOrderOfVersions checks that a subscriber never receives an older state of a key after a newer one, regardless of the
// replica that made the change and of the order in which commits are reported.
func TestOrderOfVersions(t *testing.T) {
	t.Parallel()
	var replicas [2]*live.Events
	publish := func(message []byte) {
		for _, r := range replicas {
			r.Receive(message)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		replicas[0], replicas[1] = live.New(publish), live.New(publish)
		mark := func(replica int, version int64) {
			require.NoError(t, replicas[replica].Mark(live.UsageChanged, "a", version, time.Now(), version))
		}
		reader, stop := replicas[0].Subscribe()
		defer stop()
		next := func() string {
			list := <-reader
			require.Len(t, list, 1)
			return string(list[0].Data)
		}
		mark(0, 1)
		mark(1, 3)
		mark(1, 2) // reported late
		require.NoError(t, replicas[1].Start(t.Context()))
		defer func() { require.NoError(t, replicas[1].Stop(context.Background())) }()
		require.Equal(t, "3", next())
		require.NoError(t, replicas[0].Start(t.Context())) // publishes version 1 after version 3
		defer func() { require.NoError(t, replicas[0].Stop(context.Background())) }()
		synctest.Wait()
		mark(0, 4)
		require.Equal(t, "4", next())
		require.Empty(t, reader)
	})
}
