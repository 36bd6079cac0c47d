package genesis_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/pubsub"
	wire "comet/internal/wire/genesis"
	"comet/models"
	"comet/store"
	"comet/store/partials"
)

// TestLimitsOfPartials: a partial response above a limit is refused and not stored, and the task continues.
func TestLimitsOfPartials(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]partials.Partial{
		"10,000 of a task": {Seq: 9_999, Bytes: 100},
		"8 MiB of a task":  {Seq: 3, Bytes: 8<<20 - 5}, // "fits" has 6 bytes, 12345 has 5
	} {
		runCase(t, name, func(t *testing.T, f *fixture) {
			f.agent(t, "boss")
			f.agent(t, "analyst", "analyze_data")
			f.accepted(t, as("boss"), f.request("boss", "broadcast", "analyze_data", 1, map[string]any{"options": map[string]any{"stream": true}}))
			m := f.one(t, "analyst")
			require.NoError(t, f.db.Write(t.Context(), func(tx *store.Tx) error {
				_, err := tx.Exec("INSERT INTO task_partials (task_id, seq, attempt, bytes, data, created_at) VALUES (?, ?, 1, ?, '1', ?)", m.CorrelationID, last.Seq, last.Bytes, tx.Now())
				return err
			}))
			f.accepted(t, as("analyst"), f.answer(m, "PARTIAL", 12345, nil)) // exactly the limit
			part := f.one(t, "boss").Body.(wire.Response)
			require.Equal(t, []any{"12345", last.Seq + 1}, []any{string(part.Data), part.Sequence})

			over := f.answer(m, "PARTIAL", 6, nil)
			for range 2 { // repeated
				failure, reply := f.refused(t, as("analyst"), over)
				require.Equal(t, []any{wire.ErrorAgent, "RESOURCE_LIMIT", http.StatusUnprocessableEntity}, []any{failure.ErrorType, failure.ErrorCode, reply.Status})
				require.Equal(t, "a task may have at most 10000 partial results with 8388608 bytes together", failure.Message)
			}
			require.Empty(t, f.inbox(t, "boss"))
			kept, err := f.work.Partials(t.Context(), m.CorrelationID, last.Seq, 10)
			require.NoError(t, err)
			require.Len(t, kept, 1)
			task, err := f.work.Task(t.Context(), m.CorrelationID)
			require.NoError(t, err)
			require.Equal(t, models.TaskRunning, task.State)

			f.accepted(t, as("analyst"), f.answer(m, "SUCCESS", "all", nil))
			require.Equal(t, wire.Succeeded, f.one(t, "boss").Body.(wire.Response).Status)
		})
	}
}

// TestRememberedEvents: repetitions of an event that is delivered at most once have no effect while it is one of the last events.
func TestRememberedEvents(t *testing.T) {
	t.Parallel()
	runCase(t, "", func(t *testing.T, f *fixture) {
		b, err := bus.New(&bus.Options{Listen: "127.0.0.1:0"})
		require.NoError(t, err)
		require.NoError(t, b.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, b.Stop(context.Background())) })
		f.Events = pubsub.New(f.db.Store, &pubsub.Options{Bus: b})
		f.agent(t, "boss")
		event := func(payload string) map[string]any {
			return f.message("boss", "EVENT", map[string]any{
				"to": nil, "eventType": "order.paid", "eventName": "order paid", "payload": payload,
				"metadata": map[string]any{"schemaVersion": "1.0", "contentType": "application/json"}, "deliveryGuarantee": "at-most-once",
			}, nil)
		}
		replayed := func(m map[string]any) bool {
			ack, _ := f.accepted(t, as("boss"), m)
			var payload struct{ Replayed bool }
			require.NoError(t, json.Unmarshal(ack.Body.(wire.Event).Payload, &payload))
			return payload.Replayed
		}
		first, second := event("a"), event("b")
		require.False(t, replayed(first))
		require.False(t, replayed(second))
		require.True(t, replayed(first))
		first["id"] = strings.ToUpper(first["id"].(string))
		failure, reply := f.refused(t, as("boss"), first)
		require.Equal(t, []any{"MESSAGE_REPLAYED", http.StatusConflict}, []any{failure.ErrorCode, reply.Status}, "an id is the same in upper case, but the message is another one")
		require.Equal(t, 2, f.Remembered())

		const most = 100_000
		f.Remember(most - 1) // the first one is forgotten
		require.Equal(t, most, f.Remembered())
		require.True(t, replayed(second))
		require.False(t, replayed(first))
		require.Equal(t, most, f.Remembered())
	})
}
