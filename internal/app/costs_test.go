package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/internal/testkit"
)

// TestCosts compares the commits, statements and rows of operations with the files in
// testdata/costs, on both databases. Each operation runs alone on a separate server, so that no
// callers share a commit.
func TestCosts(t *testing.T) {
	testkit.SkipIfShort(t, "it starts a server for each operation, and waits for heartbeats")
	t.Parallel()
	t.Run("operations", func(t *testing.T) {
		t.Run("create agent", costOfCreateAgent)
		t.Run("reservations", costOfReservations)
		t.Run("record usage", costOfUsage)
		t.Run("task in envelopes", costOfEnvelopeTask)
		t.Run("task over REST", costOfRESTTask)
		t.Run("task in V5", costOfV5Task)
		t.Run("schedules", costOfSchedule)
		t.Run("heartbeats", costOfHeartbeats)
		t.Run("tool calls", costOfToolCalls)
		t.Run("workflows with a budget", costOfBudgetedWorkflow)
		t.Run("replans", costOfReplans)
		t.Run("tasks of MCP", costOfMCPTask)
		t.Run("task of a tool", costOfToolTask)
		t.Run("webhook deliveries", costOfWebhooks)
		t.Run("publications", costOfPublications)
		t.Run("A2A", costOfA2A)
		t.Run("remote A2A agent", costOfRemoteAgent)
		t.Run("Genesis", costOfGenesisTask)
	})
	t.Run("documentation", costsAreDocumented)
}

func costOfCreateAgent(t *testing.T) {
	t.Parallel()
	measure(t, nil, func(t *testing.T, m *measured) {
		m.agent(t, "warm-up")
		o := m.operation("create agent (POST /api/v1/agents)")
		o.post(t, "create", m.client, http.StatusCreated, "/api/v1/agents", measuredAgent("digger"))
		o.compare(t, "create-agent")
	})
}

func costOfReservations(t *testing.T) {
	t.Parallel()
	measure(t, nil, func(t *testing.T, m *measured) {
		m.agent(t, "digger")
		const path = "/api/v1/agents/digger/reservations"
		reserve := func(title, file string) (id string) {
			o := m.operation(title)
			var made struct{ ID string }
			require.NoError(t, json.Unmarshal(o.post(t, "reserve", m.client, http.StatusCreated, path, map[string]any{"tokens": 100}), &made))
			o.compare(t, file)
			return made.ID
		}
		settle := func(id string) *operation {
			o := m.operation("settle (POST /api/v1/agents/{id}/reservations/{id}/settle)")
			o.post(t, "settle", m.client, http.StatusOK, path+"/"+id+"/settle", map[string]any{"tokens": 60})
			return o
		}
		settle(reserve("the first reservation of an agent (POST /api/v1/agents/{id}/reservations)", "reserve-first"))
		settle(reserve("reserve (POST /api/v1/agents/{id}/reservations)", "reserve")).compare(t, "settle")
	})
}

func costOfUsage(t *testing.T) {
	t.Parallel()
	measure(t, nil, func(t *testing.T, m *measured) {
		m.agent(t, "digger")
		record := func(title, file string) {
			o := m.operation(title)
			o.post(t, "record", m.client, http.StatusCreated, "/api/v1/agents/digger/usage", map[string]any{"tokens": 60})
			o.compare(t, file)
		}
		record("the first fact of an agent (POST /api/v1/agents/{id}/usage)", "record-usage-first")
		record("record usage (POST /api/v1/agents/{id}/usage)", "record-usage")
	})
}

// costOfHeartbeats measures the three kinds of heartbeats.
func costOfHeartbeats(t *testing.T) {
	t.Parallel()
	t.Run("messages", func(t *testing.T) {
		measure(t, nil, func(t *testing.T, m *measured) {
			worker, spoken := m.worker(t, "digger"), dialTCP(t, m.app.V5Addr())
			alive := func() envelopeFrame {
				return newEnvelope("infra", "orchestrator", "work_status", map[string]any{"agent_id": "digger", "status": "online"})
			}
			worker.must(t, http.StatusAccepted, http.MethodPost, "/api/agent/message", alive())
			own := spoken.join(";name=helper")
			eventually(t, func() bool { return m.online(t, "digger") && m.online(t, "v5-helper") }, "both are online")

			o := m.operation("heartbeat in an envelope (POST /api/agent/message, work_status)")
			o.post(t, "heartbeat", worker, http.StatusAccepted, "/api/agent/message", alive())
			o.compare(t, "heartbeat-envelope")
			o = m.operation("heartbeat in PROTOCOL_V5 over TCP (H)")
			o.step(t, "heartbeat", func(string) { spoken.send("M2|" + own + ">O1|H|T0|-|-|-|0|S0|-|load=5%") }, committed("UPSERT workers"))
			o.compare(t, "heartbeat-v5")
		})
	})
	t.Run("connections", func(t *testing.T) {
		measure(t, func(cfg *config.Config) { cfg.Transport.Heartbeat = time.Second }, func(t *testing.T, m *measured) {
			worker := dialEnvelope(t, m.URL, m.worker(t, "digger").Token)
			worker.conn.CloseRead(t.Context()) // responds to pings
			eventually(t, func() bool { return m.online(t, "digger") }, "the worker is online")

			o := m.operation("heartbeat of all connections of a process, in one batch (WebSocket, SSE, TCP)")
			o.step(t, "heartbeat", func(string) {}, committed("UPDATE workers"))
			o.steps[0].entries = o.steps[0].entries[:1] // others follow every second
			o.compare(t, "heartbeat-connections")
		})
	})
}

// costOfToolCalls measures calls of a tool of an upstream process.
func costOfToolCalls(t *testing.T) {
	t.Parallel()
	file := toolsFile(t)
	measure(t, func(cfg *config.Config) { cfg.MCP.Servers = file }, func(t *testing.T, m *measured) {
		caller := m.worker(t, "caller")
		eventually(t, func() bool {
			return m.online(t, "mcp-tools") && slices.Contains(caller.tools(t, "tools"), "tools:echo")
		}, "the upstream is ready")
		// The rejection of work that no agent offers waits until all agents are in the index.
		m.must(t, http.StatusUnprocessableEntity, http.MethodPost, "/api/v1/tasks", map[string]any{"capabilities": []string{"custom:none"}})
		flush := func() { m.must(t, http.StatusOK, http.MethodGet, "/api/v1/tools/calls", nil) } // flushes the audit log
		flush()
		call := func(title, name string) {
			o := m.operation(title)
			o.step(t, "call", func(id string) {
				w := caller.modern(t, "tools/call", "tools:echo", `"name":"tools:echo","arguments":{"depth":3}`, "X-Request-Id", id)
				require.Equal(t, http.StatusOK, w.status, w.body)
				flush()
			}, written("INSERT tool_calls", 1))
			o.compare(t, name)
		}
		call("the first call of a tool by an agent (POST /mcp, tools/call, upstream over stdio)", "tool-call-first")
		call("tool call (POST /mcp, tools/call, upstream over stdio)", "tool-call")

		chain := m.operation("workflow with a chain of three tool steps (agentcards:execute_dag), without the audit of its calls")
		chain.step(t, "execute", func(id string) {
			const echo = `"tool":"tools:echo","arguments":{"depth":3}`
			w := caller.modern(t, "tools/call", "agentcards:execute_dag", `"name":"agentcards:execute_dag","arguments":{"workflow":{"tasks":[{"id":"a",`+echo+`},{"id":"b",`+echo+`,"depends_on":["a"]},{"id":"c",`+echo+`,"depends_on":["b"]}]}}`, "X-Request-Id", id)
			require.Equal(t, http.StatusOK, w.status, w.body)
			flush()
		}, written("INSERT tool_calls", 4))
		chain.steps[0].entries = slices.DeleteFunc(chain.steps[0].entries, func(e entry) bool { return e.touches("INSERT tool_calls") }) // their number depends on time
		chain.compare(t, "workflow-chain")

		o := m.operation("release of the prepaid tokens of an agent that has called no tool for 5 seconds")
		o.step(t, "release", func(string) { m.clock.Advance(5 * time.Second) }, committed("UPSERT usage_accounts"))
		o.compare(t, "tool-call-release")
	})
}

// costOfWebhooks measures the delivery of one event to one webhook.
func costOfWebhooks(t *testing.T) {
	t.Parallel()
	measure(t, nil, func(t *testing.T, m *measured) {
		m.must(t, http.StatusCreated, http.MethodPost, "/api/v1/webhooks", map[string]any{"url": receiver(t), "events": []string{"agent.created"}})
		deliver := func(title, name, agent string) {
			o := m.operation(title)
			o.post(t, "create an agent and deliver the event", m.client, http.StatusCreated, "/api/v1/agents", measuredAgent(agent), committed("UPDATE deliveries"))
			o.compare(t, name)
		}
		deliver("the first delivery to a webhook (event agent.created)", "webhook-delivery-first", "digger")
		deliver("webhook delivery (event agent.created)", "webhook-delivery", "helper")
	})
}

// costOfA2A measures a message, and reads of its task, which waits for its agent, and messages that start a workflow and end it.
func costOfA2A(t *testing.T) {
	t.Parallel()
	measure(t, nil, func(t *testing.T, m *measured) {
		m.agent(t, "digger")
		call := func(o *operation, method string, params map[string]any) (out struct {
			Result struct {
				Task struct{ ID string }
			}
		}) {
			body := o.post(t, method, m.client, http.StatusOK, "/a2a?A2A-Version=1.0", map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
			require.NoError(t, json.Unmarshal(body, &out))
			return out
		}
		send := func(o *operation, id string) string {
			message := map[string]any{"messageId": id, "role": "ROLE_USER", "parts": []any{map[string]string{"text": "deep"}}, "metadata": map[string]string{"capability": "custom:dig"}}
			out := call(o, "SendMessage", map[string]any{"message": message, "configuration": map[string]any{"returnImmediately": true}})
			require.NotEmpty(t, out.Result.Task.ID)
			return out.Result.Task.ID
		}
		send(m.operation("the first message"), "m-0") // opens what later ones share
		o := m.operation("A2A: a message that requests a task, and reads of the task")
		id := send(o, "m-1")
		call(o, "GetTask", map[string]any{"id": id})
		call(o, "ListTasks", map[string]any{})
		o.compare(t, "a2a")

		o = m.operation("A2A: a message that starts a workflow, which asks for an approval, and a message that rejects it")
		steps := []any{map[string]any{"id": "t1", "type": "agent_task", "capability": "custom:dig", "approve": true}}
		started := call(o, "SendMessage", map[string]any{"message": map[string]any{
			"messageId": "m-2", "role": "ROLE_USER", "parts": []any{map[string]any{"data": map[string]any{"workflow": map[string]any{"tasks": steps}}}}, "metadata": map[string]string{"capability": "execute_workflow"},
		}})
		call(o, "SendMessage", map[string]any{"message": map[string]any{
			"messageId": "m-3", "taskId": started.Result.Task.ID, "role": "ROLE_USER", "parts": []any{map[string]string{"text": "reject"}},
		}})
		o.compare(t, "a2a-workflow")
	})
}

// costOfRemoteAgent measures a task that a remote A2A agent executes, which streams its events.
func costOfRemoteAgent(t *testing.T) {
	t.Parallel()
	measure(t, nil, func(t *testing.T, m *measured) {
		finish := make(chan struct{})
		var server *httptest.Server
		server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = fmt.Fprintf(w, `{"name":"Remote","capabilities":{"streaming":true},"supportedInterfaces":[{"url":"%s","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`, server.URL)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			event := func(task string) {
				_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"task\":{\"id\":\"r-1\",\"contextId\":\"c-1\",%s}}}\n\n", task)
				_ = http.NewResponseController(w).Flush()
			}
			event(`"status":{"state":"TASK_STATE_WORKING"}`)
			select {
			case <-finish:
				event(`"status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"data":{"hole":1}}]}]`)
			case <-r.Context().Done():
			}
		}))
		t.Cleanup(server.Close)
		t.Cleanup(server.CloseClientConnections)
		m.agent(t, "digger")
		m.must(t, http.StatusCreated, http.MethodPut, "/api/v1/agents/digger/a2a", map[string]any{"card_url": server.URL + "/card.json"})
		eventually(t, func() bool { return m.online(t, "digger") }, "the remote agent is online")
		perform := func(o *operation) {
			o.post(t, "submit and start (POST /api/v1/tasks)", m.client, http.StatusAccepted, "/api/v1/tasks",
				map[string]any{"capabilities": []string{measuredWork}, "parameters": map[string]any{"depth": 3}}, committed("UPSERT remote_tasks"), written("INSERT events", 2))
			o.step(t, "complete (an event of the stream)", func(string) { finish <- struct{}{} }, committed("INSERT outcomes"))
		}
		perform(m.operation("the first"))
		o := m.operation("submit, start and complete a task: submitted over REST, executed by a remote A2A agent that streams")
		perform(o)
		o.compare(t, "task-remote-a2a")
	})
}
