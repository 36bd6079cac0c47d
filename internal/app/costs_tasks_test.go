package app_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// measuredWork is the work type of the measured worker.
const measuredWork = "dig"

func workRequest() envelopeFrame {
	return newEnvelope("orchestrator", "infra", "work_request", map[string]any{
		"task_id": uuid.NewString(), "work_type": measuredWork, "parameters": map[string]any{"depth": 3},
		"hints": map[string]any{"max_duration_seconds": 60, "max_tokens": 500},
	})
}

func accepted(task any) envelopeFrame {
	return newEnvelope("infra", "orchestrator", "work_status", map[string]any{"task_id": task, "progress_percent": 10, "status": "running"})
}

func workResult(task any) envelopeFrame {
	return newEnvelope("infra", "orchestrator", "work_result", map[string]any{
		"task_id": task, "status": "success", "exit_code": 0, "output": "a hole",
		"resources_used": map[string]any{"duration_seconds": 1, "gpu_vram_mb": 0, "cpu_time_ms": 1, "tokens": 60},
	})
}

// costOfEnvelopeTask measures a task in envelopes, requested over HTTP, with a worker on a
// WebSocket.
func costOfEnvelopeTask(t *testing.T) {
	t.Parallel()
	measure(t, nil, func(t *testing.T, m *measured) {
		worker := dialEnvelope(t, m.URL, m.worker(t, "digger").Token)
		eventually(t, func() bool { return m.online(t, "digger") }, "the worker is online")
		perform := func(o *operation) {
			request, job := workRequest(), envelopeFrame{}
			o.step(t, "submit (POST /api/agent/message, work_request)", func(id string) {
				m.must(t, http.StatusAccepted, http.MethodPost, "/api/agent/message", request, "X-Request-Id", id)
				job = worker.next()
			})
			require.Equal(t, request.Payload["task_id"], job.Payload["task_id"])
			o.step(t, "acknowledge the message (ack)", func(string) {
				worker.send(envelopeFrame{Ack: []string{job.MessageID}})
			})
			accept := accepted(job.Payload["task_id"])
			o.step(t, "accept (work_status, running)", func(string) {
				worker.send(accept)
				require.Equal(t, []string{accept.MessageID}, worker.next().Ack)
			})
			done := workResult(job.Payload["task_id"])
			o.step(t, "complete (work_result)", func(string) {
				worker.send(done)
				require.Equal(t, []string{done.MessageID}, worker.next().Ack)
			})
		}
		perform(m.operation("the first"))
		o := m.operation("submit, accept and complete a task: envelopes, requested over HTTP, worker on a WebSocket")
		perform(o)
		o.compare(t, "task-envelope-websocket")
	})
}

// costOfRESTTask measures a task submitted over REST with a worker that polls.
func costOfRESTTask(t *testing.T) {
	t.Parallel()
	measure(t, nil, func(t *testing.T, m *measured) {
		worker := m.worker(t, "digger")
		worker.must(t, http.StatusOK, http.MethodGet, "/api/agent/inbox", nil)
		eventually(t, func() bool { return m.online(t, "digger") }, "the worker is online")
		perform := func(o *operation) {
			o.post(t, "submit (POST /api/v1/tasks)", m.client, http.StatusAccepted, "/api/v1/tasks",
				map[string]any{"capabilities": []string{measuredWork}, "parameters": map[string]any{"depth": 3}, "budget": 500})
			var inbox struct{ Messages []envelopeFrame }
			o.step(t, "receive (GET /api/agent/inbox)", func(id string) {
				require.NoError(t, json.Unmarshal(worker.must(t, http.StatusOK, http.MethodGet, "/api/agent/inbox", nil, "X-Request-Id", id), &inbox))
				require.Len(t, inbox.Messages, 1)
			})
			job := inbox.Messages[0]
			o.post(t, "acknowledge the message (POST /api/agent/inbox/ack)", worker, http.StatusOK, "/api/agent/inbox/ack", map[string]any{"message_ids": []string{job.MessageID}})
			o.post(t, "accept (POST /api/agent/message, work_status)", worker, http.StatusAccepted, "/api/agent/message", accepted(job.Payload["task_id"]))
			o.post(t, "complete (POST /api/agent/message, work_result)", worker, http.StatusAccepted, "/api/agent/message", workResult(job.Payload["task_id"]))
		}
		perform(m.operation("the first"))
		o := m.operation("submit, accept and complete a task: submitted over REST, worker polls its inbox")
		perform(o)
		o.compare(t, "task-rest-poll")
	})
}

// costOfGenesisTask measures a task in Genesis, requested by an agent whose signature replaces a token, with a worker that polls.
func costOfGenesisTask(t *testing.T) {
	t.Parallel()
	measure(t, nil, func(t *testing.T, m *measured) {
		worker, boss := m.worker(t, "digger"), ed25519.NewKeyFromSeed([]byte(strings.Repeat("b", ed25519.SeedSize)))
		m.agent(t, "boss")
		m.must(t, http.StatusCreated, http.MethodPost, "/api/v1/agents/boss/keys",
			map[string]any{"public_key": base64.StdEncoding.EncodeToString(boss.Public().(ed25519.PublicKey)), "signature_only": true})
		g := &genesisServer{client: m.client, keys: map[string]ed25519.PrivateKey{"boss": boss}}
		poll := func(id string) object {
			var inbox struct{ Messages []object }
			require.NoError(t, json.Unmarshal(worker.must(t, http.StatusOK, http.MethodGet, "/api/agent/inbox?protocol=genesis", nil, "X-Request-Id", id), &inbox))
			if len(inbox.Messages) == 0 {
				return nil
			}
			return inbox.Messages[0]
		}
		poll("")
		eventually(t, func() bool { return m.online(t, "digger") }, "the worker is online")
		perform := func(o *operation) {
			request := g.request("boss", "broadcast", measuredWork, object{"depth": 3})
			request["options"] = object{"requiresAck": true, "stream": true}
			request["timestamp"] = m.clock.Now().UnixMicro() * 1000
			g.sign(t, request)
			o.step(t, "submit (POST /api/genesis/messages, a signed REQUEST)", func(id string) {
				m.must(t, http.StatusAccepted, http.MethodPost, "/api/genesis/messages", request, "X-Request-Id", id, "Authorization", "")
			})
			var job object
			o.step(t, "receive (GET /api/agent/inbox)", func(id string) { job = poll(id) })
			require.Equal(t, "REQUEST", job["type"])
			o.post(t, "acknowledge the message (POST /api/agent/inbox/ack)", worker, http.StatusOK, "/api/agent/inbox/ack", map[string]any{"message_ids": []any{job["id"]}})
			respond := func(name, status string, data any) {
				response := g.message("RESPONSE", "digger", "nova", object{"correlationId": job["correlationId"], "requestId": job["id"], "status": status, "data": data})
				response["timestamp"] = m.clock.Now().UnixMicro() * 1000
				o.post(t, name, worker, http.StatusAccepted, "/api/genesis/messages", response)
			}
			respond("a partial response (RESPONSE, PARTIAL)", "PARTIAL", "half a hole")
			respond("complete (RESPONSE, SUCCESS)", "SUCCESS", "a hole")
		}
		perform(m.operation("the first"))
		o := m.operation("submit, receive, partly complete and complete a task: Genesis, a signed request with requiresAck and stream, worker polls its inbox")
		perform(o)
		o.compare(t, "task-genesis-poll")
	})
}

// costOfSchedule measures a schedule that submits a task.
func costOfSchedule(t *testing.T) {
	t.Parallel()
	measure(t, nil, func(t *testing.T, m *measured) {
		worker := m.worker(t, "digger")
		worker.must(t, http.StatusOK, http.MethodGet, "/api/agent/inbox", nil)
		eventually(t, func() bool { return m.online(t, "digger") }, "the worker is online")
		perform := func(o *operation) {
			var made struct{ ID string }
			draft := map[string]any{"every_ms": 1000, "task": map[string]any{"capabilities": []string{measuredWork}}}
			require.NoError(t, json.Unmarshal(o.post(t, "create (POST /api/v1/schedules)", m.client, http.StatusCreated, "/api/v1/schedules", draft), &made))
			o.step(t, "run (job)", func(string) { m.clock.Advance(time.Second) }, committed("UPDATE schedules"))
			m.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/schedules/"+made.ID, nil)
		}
		perform(m.operation("the first"))
		o := m.operation("create and run a schedule that submits a task")
		perform(o)
		o.compare(t, "schedule")
	})
}

// costOfV5Task measures a task in PROTOCOL_V5 between two agents over TCP.
func costOfV5Task(t *testing.T) {
	t.Parallel()
	measure(t, nil, func(t *testing.T, m *measured) {
		worker, requester := dialTCP(t, m.app.V5Addr()), dialTCP(t, m.app.V5Addr())
		own, by := worker.join(";name=digger;caps=custom:dig"), requester.join(";name=requester")
		eventually(t, func() bool { return m.online(t, "v5-digger") && m.online(t, "v5-requester") }, "both are online")
		perform := func(o *operation) {
			var job, ack []string
			o.step(t, "submit (R)", func(string) {
				requester.send("M2|" + by + ">O1|R|-|P1|N|-|0|-|B500|call=dig;deep=true")
				ack, job = strings.Split(requester.next(), "|"), strings.Split(worker.next(), "|")
			}, written("INSERT v5_messages", 3))
			require.Equal(t, []string{"A", "R"}, []string{ack[2], job[2]}, "%v %v", ack, job)
			about := "|" + job[3] + "|P1|"
			o.step(t, "accept (A)", func(string) {
				worker.send("M2|" + own + ">O1|A" + about + "R|-|0|" + job[8] + "|-|-")
			}, committed("UPDATE tasks"), written("INSERT v5_messages", 1))
			o.step(t, "complete (S)", func(string) {
				worker.send("M3|" + own + ">O1|S" + about + "D|-|0|" + job[8] + "|B440|hole=1")
				require.Contains(t, worker.next(), "|A|")
				require.Contains(t, requester.next(), "|S|")
			}, written("INSERT v5_messages", 3))
			o.step(t, "acknowledge the result (with the next message, H)", func(string) {
				requester.send("M3|" + by + ">O1|H|T0|-|-|-|0|S0|-|load=0%")
			}, committed("UPSERT workers"))
		}
		perform(m.operation("the first"))
		o := m.operation("submit, accept and complete a task: PROTOCOL_V5, requester and worker over TCP")
		perform(o)
		o.compare(t, "task-v5-tcp")
	})
}
