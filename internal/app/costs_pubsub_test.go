package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// costOfPublications measures publications to one subscriber and to 500, and a delivery to an agent that polls.
func costOfPublications(t *testing.T) {
	t.Parallel()
	measure(t, nil, func(t *testing.T, m *measured) {
		subscribe := func(id, pattern string) {
			m.must(t, http.StatusOK, http.MethodPut, "/api/v1/agents/"+id+"/subscriptions", map[string]any{"patterns": []any{map[string]any{"pattern": pattern}}})
		}
		body := func(typ, guarantee, id string) map[string]any {
			return map[string]any{"type": typ, "payload": map[string]any{"order": 81}, "guarantee": guarantee, "deduplication_id": id}
		}
		const path = "/api/v1/publications"
		worker := m.worker(t, "digger")
		subscribe("digger", "one.paid")
		poll := func(id string) (out struct {
			Messages []struct {
				ID string `json:"message_id"`
			}
		}) {
			require.NoError(t, json.Unmarshal(worker.must(t, http.StatusOK, http.MethodGet, "/api/agent/inbox?protocol=v5", nil, "X-Request-Id", id), &out))
			return out
		}
		poll("warm-up")
		deliver := func(o *operation, guarantee, id string) *operation {
			o.post(t, "publish (POST /api/v1/publications)", m.client, http.StatusAccepted, path, body("one.paid", guarantee, id))
			var ids []string
			o.step(t, "receive (GET /api/agent/inbox)", func(id string) {
				got := poll(id)
				require.Len(t, got.Messages, 1)
				ids = append(ids, got.Messages[0].ID)
			})
			o.post(t, "acknowledge (POST /api/agent/inbox/ack)", worker, http.StatusOK, "/api/agent/inbox/ack", map[string]any{"message_ids": ids})
			return o
		}
		deliver(m.operation("the first"), "at-least-once", "")
		deliver(m.operation("publish at least once to one agent, which polls and acknowledges"), "at-least-once", "").compare(t, "publish-one")
		o := m.operation("publish exactly once, and repeat it (POST /api/v1/publications)")
		o.post(t, "publish", m.client, http.StatusAccepted, path, body("none.paid", "exactly-once", "d1"))
		o.post(t, "repeat", m.client, http.StatusAccepted, path, body("none.paid", "exactly-once", "d1"))
		o.compare(t, "publish-exactly-once")
		o = m.operation("publish at most once (POST /api/v1/publications)")
		o.post(t, "publish", m.client, http.StatusAccepted, path, body("one.paid", "at-most-once", ""))
		o.compare(t, "publish-at-most-once")

		for n := range 500 {
			id := fmt.Sprintf("many-%d", n)
			m.agent(t, id)
			subscribe(id, "many.*")
		}
		o = m.operation("publish at least once to 500 agents (POST /api/v1/publications)")
		o.post(t, "publish", m.client, http.StatusAccepted, path, body("many.paid", "at-least-once", ""))
		o.compare(t, "publish-many")
	})
}
