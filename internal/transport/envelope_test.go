package transport_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	"comet/internal/transport"
	"comet/models"
	"comet/store/storetest"
)

// TestEnvelopesOnTheQueue is the message-queue form with the dialect it was made for.
func TestEnvelopesOnTheQueue(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		ground, motion := newBackend(t, db), newBus(t)
		h := openFixture(t, ground, nil, func(c *transport.Core) {
			c.Bus, c.Protocols = motion, []protocol.Protocol{envelope.New(c.Work, nil)}
		})
		token, inbox := h.agent(t, "ada"), make(chan map[string]any, 10)
		_, err := motion.Subscribe(bus.AgentInbox("ada"), func(m bus.Message) {
			var e map[string]any
			_ = json.Unmarshal(m.Data, &e)
			inbox <- e
		})
		require.NoError(t, err)
		say := func(kind string, payload map[string]any) (answer map[string]any) {
			t.Helper()
			body, err := json.Marshal(map[string]any{
				"protocol_version": "1.0", "message_id": uuid.NewString(), "trace_id": uuid.NewString(), "request_id": uuid.NewString(),
				"from_agent": "infra", "to_agent": "orchestrator", "timestamp": time.Now().UTC().Format(time.RFC3339), "type": kind, "payload": payload,
				"x_custom_fields": map[string]any{"auth_token": token, "other": 1},
			})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				m, err := motion.Request(context.Background(), bus.AgentOutbox("ada"), body)
				return err == nil && json.Unmarshal(m.Data, &answer) == nil
			}, time.Minute, time.Millisecond)
			return answer
		}
		presence := func(status string) {
			t.Helper()
			require.NotEmpty(t, say("work_status", map[string]any{"agent_id": "ada", "status": status})["ack"])
		}

		presence("busy")
		h.waitForWorker(t, "ada", func(w models.Worker) bool { return w.Transport == transport.NATS && w.State == models.WorkerBusy })
		presence("online")
		h.waitForWorker(t, "ada", func(w models.Worker) bool { return w.Transport == transport.NATS && online(w) })
		task := h.submit(t, "ada")
		order := <-inbox
		require.Equal(t, "work_request", order["type"])
		require.Equal(t, task.ID, order["payload"].(map[string]any)["task_id"])
		answer := say("work_result", map[string]any{
			"task_id": task.ID, "status": "success", "exit_code": 0, "output": "done",
			"resources_used": map[string]any{"duration_seconds": 1, "gpu_vram_mb": 0, "cpu_time_ms": 1},
		})
		require.NotEmpty(t, answer["ack"], "%v", answer)
		task, err = h.Task(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, models.TaskDone, task.State)

		presence("offline")
		h.waitForWorker(t, "ada", offline)
		presence("online")
		second := h.submit(t, "ada")
		require.Equal(t, second.ID, (<-inbox)["payload"].(map[string]any)["task_id"], "it is on the queue again")
	})
}
