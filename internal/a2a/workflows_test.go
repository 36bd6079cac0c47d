package a2a_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/testkit"
	"comet/internal/workflow"
	"comet/internal/workflow/plan"
	"comet/models"
	"comet/store"
	rows "comet/store/a2a"
	"comet/store/workflows"
)

// save stores a workflow.
func (h *harness) save(t *testing.T, name, schema string, steps ...plan.Step) {
	t.Helper()
	d := workflow.Definition{Name: name, Description: "Says it.", Workflow: workflow.Graph{Tasks: steps}}
	if schema != "" {
		d.InputSchema = json.RawMessage(schema)
	}
	_, _, err := h.flows.SaveDefinition(t.Context(), testkit.Admin(), d, nil)
	require.NoError(t, err)
}

// run returns a message with data that starts a stored workflow.
func run(id, name, data string) string {
	return `{"messageId":"` + id + `","role":"ROLE_USER","parts":[{"data":` + data + `}],"metadata":{"workflow":"` + name + `"}}`
}

// steps returns a message that starts a workflow of steps.
func steps(id, tasks string) string {
	return `{"messageId":"` + id + `","role":"ROLE_USER","parts":[{"data":{"workflow":{"tasks":` + tasks + `}}}],"metadata":{"capability":"execute_workflow"}}`
}

func echo(id, arguments string, after ...string) plan.Step {
	return plan.Step{ID: id, Tool: "paper:echo", Arguments: json.RawMessage(arguments), DependsOn: after}
}

// TestWorkflows: a message starts a workflow, whose results are artifacts.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	withWorkflows(t, "a stored workflow", func(t *testing.T, h *harness) {
		h.save(t, "say", `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}`, echo("a", `{"said":"$input.text"}`), echo("b", `{"again":"$a.result.said"}`, "a"))
		done := send(t, h.Client, run("m-1", "say", `{"text":"hello"}`))
		require.Equal(t, "TASK_STATE_COMPLETED", done.Status.State)
		require.True(t, strings.HasPrefix(done.ID, "wf_"), done.ID)
		require.Len(t, done.Artifacts, 2)
		require.JSONEq(t, `{"said":"hello"}`, string(done.Artifacts[0].Parts[0].Data))
		require.Equal(t, []string{"step-a", "step-b"}, []string{done.Artifacts[0].ArtifactID, done.Artifacts[1].ArtifactID})
		require.Equal(t, "m-1", done.History[0].MessageID)
		require.Equal(t, done, getTask(t, h.Client, done.ID))
		require.Equal(t, done, send(t, h.Client, run("m-1", "say", `{"text":"hello"}`)), "a repetition returns the same task")
		require.Equal(t, -32602, rpc(t, h.Client, "SendMessage", `{"message":`+run("m-1", "say", `{"text":"other"}`)+`}`, nil).Code)

		asText := send(t, h.Client, `{"messageId":"m-2","role":"ROLE_USER","contextId":"ours","parts":[{"text":"from text"}],"metadata":{"workflow":"say"}}`)
		require.Equal(t, []string{"TASK_STATE_COMPLETED", "ours"}, []string{asText.Status.State, asText.ContextID})
		require.JSONEq(t, `{"said":"from text"}`, string(asText.Artifacts[0].Parts[0].Data))
		v, err := h.flows.Get(t.Context(), models.System(), asText.ID)
		require.NoError(t, err)
		require.Equal(t, &workflow.DefinitionRef{Name: "say", Version: 1}, v.Definition)

		other := h.client(t, "", models.ScopeMessagesSend)
		require.Equal(t, -32001, rpc(t, other, "GetTask", `{"id":"`+done.ID+`"}`, nil).Code, "another token does not see it")
		require.Contains(t, rpc(t, other, "SendMessage", `{"message":`+run("m-3", "say", `{"text":"x"}`)+`}`, nil).Message, `lacks the scope "tools:call"`)
		var page struct{ Tasks []task }
		require.Nil(t, rpc(t, h.Client, "ListTasks", `{"includeArtifacts":true,"status":"TASK_STATE_COMPLETED"}`, &page))
		require.Equal(t, []task{asText, done}, page.Tasks)
		require.Nil(t, rpc(t, h.Client, "ListTasks", `{"contextId":"ours"}`, &page))
		require.Len(t, page.Tasks, 1)

		var card struct {
			Skills []struct{ ID, Description string }
		}
		require.Nil(t, rpc(t, h.Client, "GetExtendedAgentCard", `{}`, &card))
		last := card.Skills[len(card.Skills)-1]
		require.Equal(t, "workflow:say", last.ID)
		require.Contains(t, last.Description, "Send say as metadata.workflow")
	})
	withWorkflows(t, "steps, failures and what cannot be started", func(t *testing.T, h *harness) {
		done := send(t, h.Client, steps("m-1", `[{"id":"t1","tool":"paper:note"},{"id":"t2","tool":"paper:fail"}]`))
		require.Equal(t, "TASK_STATE_FAILED", done.Status.State)
		require.Equal(t, "t2: no ink", done.Status.Message.Parts[0].Text)
		require.Len(t, done.Artifacts, 1, "the results of successful steps are kept")
		require.Equal(t, "noted", done.Artifacts[0].Parts[0].Text)
		for id, want := range map[string]string{
			run("r-1", "none", `{}`):                          `there is no workflow definition "none"`,
			steps("r-2", `[{"id":"t1","tool":"paper:none"}]`): "paper:none",
			`{"messageId":"r-3","role":"ROLE_USER","parts":[{"text":"Dance in the rain"}],"metadata":{"capability":"execute_workflow"}}`: "the text does not determine a workflow",
		} {
			rejected := send(t, h.Client, id)
			require.Equal(t, "TASK_STATE_REJECTED", rejected.Status.State)
			require.Contains(t, rejected.Status.Message.Parts[0].Text, want)
		}
		h.save(t, "strict", `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`, echo("a", `{"n":"$input.n"}`))
		for message, want := range map[string]string{
			steps("w-1", `[]`):                  "the data of the message is not valid: /workflow/tasks",
			steps("w-2", `[{"id":"t1"}]`):       "/workflow/tasks/0",
			run("w-3", "strict", `{"n":"x"}`):   "/definition/input/n",
			run("w-4", "strict", `[]`):          "/definition/input",
			steps("w-5", `[{"id":"t1","x":1}]`): "/workflow/tasks/0/x",
		} {
			failed := rpc(t, h.Client, "SendMessage", `{"message":`+message+`}`, nil)
			require.NotNil(t, failed, message)
			require.Equal(t, -32602, failed.Code, message)
			require.Contains(t, failed.Message, want)
		}
		failed := rpc(t, h.Client, "SendMessage", `{"tenant":"x","message":`+run("w-6", "strict", `{"n":1}`)+`}`, nil)
		require.Contains(t, failed.Message, "tenant must be absent")
	})
	withWorkflows(t, "a budget", func(t *testing.T, h *harness) {
		message := strings.Replace(steps("m-1", `[{"id":"t1","tool":"paper:note"}]`), `"capability"`, `"budget":100,"capability"`, 1)
		done := send(t, h.Client, message)
		v, err := h.flows.Get(t.Context(), models.System(), done.ID)
		require.NoError(t, err)
		require.EqualValues(t, 100, v.Budget.Total)
		h.AddAgent(t, "payer-1", "")
		rejected := send(t, h.client(t, "payer-1", models.ScopeMessagesSend, models.ScopeToolsCall), strings.NewReplacer("m-1", "m-2", ":100,", ":1000000000000,").Replace(message))
		require.Equal(t, "TASK_STATE_REJECTED", rejected.Status.State)
	})
}

const approved = `[{"id":"t1","tool":"paper:note"},{"id":"t2","tool":"paper:shred","depends_on":["t1"],"approve":true}]`

// TestWorkflowPauses: a paused workflow is INPUT_REQUIRED, and the next message decides.
func TestWorkflowPauses(t *testing.T) {
	t.Parallel()
	withWorkflows(t, "an approval", func(t *testing.T, h *harness) {
		asked := send(t, h.Client, steps("m-1", approved))
		require.Equal(t, "TASK_STATE_INPUT_REQUIRED", asked.Status.State)
		question := asked.Status.Message
		require.Contains(t, question.Parts[0].Text, "These steps begin only if they are approved")
		require.Contains(t, question.Parts[0].Text, "t2: paper:shred")
		require.Contains(t, question.Parts[0].Text, "Reply with one of: approve, reject")
		require.Equal(t, []any{"approve", "reject"}, question.Metadata["options"])
		wrong := rpc(t, h.Client, "SendMessage", `{"message":`+text("m-2", "perhaps", "", "", asked.ID)+`}`, nil)
		require.Equal(t, `the decision must be one of approve, reject, not "perhaps": send it as text, or as data with the member decision`, wrong.Message)
		stale := rpc(t, h.Client, "SendMessage", `{"message":{"messageId":"m-2","role":"ROLE_USER","taskId":"`+asked.ID+`","parts":[{"data":{"decision":"approve","checkpoint_id":"cp_x"}}]}}`, nil)
		require.Equal(t, -32004, stale.Code)
		require.Equal(t, asked, getTask(t, h.Client, asked.ID), "an invalid reply changes nothing")
		done := send(t, h.Client, text("m-2", "approve as planned", "", "", asked.ID))
		require.Equal(t, "TASK_STATE_COMPLETED", done.Status.State)
		require.Len(t, done.Artifacts, 2)
		require.Len(t, done.History, 3)
		require.Equal(t, *question, done.History[1])
		require.Equal(t, done, send(t, h.Client, text("m-2", "approve as planned", "", "", asked.ID)), "a repeated reply changes nothing")
		require.Equal(t, -32004, rpc(t, h.Client, "SendMessage", `{"message":`+text("m-3", "approve", "", "", asked.ID)+`}`, nil).Code)
		checkpoints, _, err := h.flows.Checkpoints(t.Context(), models.System(), asked.ID, "", 10)
		require.NoError(t, err)
		require.Equal(t, []string{"approved", "as planned"}, []string{checkpoints[0].State, checkpoints[0].Feedback})
	})
	withWorkflows(t, "a rejection, a layer and a cancellation", func(t *testing.T, h *harness) {
		asked := send(t, h.Client, steps("m-1", approved))
		rejected := send(t, h.Client, `{"messageId":"m-2","role":"ROLE_USER","taskId":"`+asked.ID+`","parts":[{"data":{"decision":"reject","feedback":"not this one"}}]}`)
		require.Equal(t, "TASK_STATE_CANCELED", rejected.Status.State)
		require.Equal(t, "not this one", rejected.Status.Message.Parts[0].Text)

		layered := strings.Replace(steps("m-3", strings.Replace(approved, `,"approve":true`, "", 1)), `"data":{`, `"data":{"config":{"per_layer_validation":true},`, 1)
		layer := send(t, h.Client, layered)
		require.Contains(t, layer.Status.Message.Parts[0].Text, "Layer 1 of 2 is complete. Next: t2")
		require.Len(t, layer.Artifacts, 1, "results of steps are artifacts as soon as they exist")
		require.Equal(t, "TASK_STATE_COMPLETED", send(t, h.Client, text("m-4", "Continue", "", "", layer.ID)).Status.State)

		open := send(t, h.Client, steps("m-5", approved))
		var canceled task
		require.Nil(t, rpc(t, h.Client, "CancelTask", `{"id":"`+open.ID+`"}`, &canceled))
		require.Equal(t, "TASK_STATE_CANCELED", canceled.Status.State)
		require.Equal(t, -32002, rpc(t, h.Client, "CancelTask", `{"id":"`+open.ID+`"}`, nil).Code)
		require.Equal(t, "TASK_NOT_CANCELABLE", rpc(t, h.Client, "CancelTask", `{"id":"`+rejected.ID+`"}`, nil).Data[0].Reason)
		require.Equal(t, -32004, rpc(t, h.Client, "SubscribeToTask", `{"id":"`+open.ID+`"}`, nil).Code)
	})
	withWorkflows(t, "another token approves", func(t *testing.T, h *harness) {
		one, other := h.client(t, "", models.ScopeMessagesSend, models.ScopeToolsCall), h.client(t, "", models.ScopeMessagesSend, models.ScopeWorkflowsApprove)
		unrelated := h.client(t, "", models.ScopeMessagesSend, models.ScopeToolsCall)
		asked := send(t, one, strings.Replace(steps("m-1", approved), `"data":{`, `"data":{"config":{"approver":"other"},`, 1))
		failed := rpc(t, one, "SendMessage", `{"message":`+text("m-2", "approve", "", "", asked.ID)+`}`, nil)
		require.Contains(t, failed.Message, "may not approve its steps, because its approver is other")
		require.Equal(t, -32001, rpc(t, unrelated, "SendMessage", `{"message":`+text("m-2", "approve", "", "", asked.ID)+`}`, nil).Code)
		require.Equal(t, "TASK_STATE_COMPLETED", send(t, other, text("m-2", "approve", "", "", asked.ID)).Status.State)
	})
	withWorkflows(t, "the question of an agent of a step", func(t *testing.T, h *harness) {
		h.worker(t, "ask-1", h.asks("which year?", "2025", "2026"), "ask")
		s := open(t, h.Client, "/message:stream", `{"message":`+steps("m-1", `[{"id":"t1","type":"agent_task","capability":"custom:ask"}]`)+`}`)
		id, question := s.question()
		require.Equal(t, question, getTask(t, h.Client, id).Status.Message)
		require.Equal(t, "which year?", question.Parts[0].Text)
		for status, want := range map[string]int{"TASK_STATE_INPUT_REQUIRED": 1, "TASK_STATE_WORKING": 0} {
			var list struct{ Tasks []task }
			require.Nil(t, rpc(t, h.Client, "ListTasks", `{"status":"`+status+`"}`, &list))
			require.Len(t, list.Tasks, want, status)
		}
		tasks, err := workflows.RunningTasks(h.DB.Reads(t.Context()), id)
		require.NoError(t, err)
		requested, err := rows.Requested(h.DB.Reads(t.Context()), tasks[0])
		require.NoError(t, err)
		require.Equal(t, id, requested.TaskID, "remote agents count the hops from this message")
		done := send(t, h.Client, text("m-2", "2026", "", "", id))
		require.Equal(t, "TASK_STATE_COMPLETED", done.Status.State)
		require.Equal(t, "you said 2026", done.Artifacts[0].Parts[0].Text)
		all := s.rest()
		require.Equal(t, "TASK_STATE_COMPLETED", all[len(all)-1].state())
	})
	withWorkflows(t, "the questions of two agents", func(t *testing.T, h *harness) {
		h.worker(t, "ask-1", h.asks("which year?", "2025", "2026"), "ask")
		s := open(t, h.Client, "/message:stream", `{"message":`+steps("m-1", `[{"id":"t1","type":"agent_task","capability":"custom:ask"},{"id":"t2","type":"agent_task","capability":"custom:ask"}]`)+`}`)
		id, _ := s.question()
		require.Eventually(t, func() bool {
			asking, err := store.Row[int](h.DB.Reads(t.Context()), "SELECT count(*) FROM tasks WHERE waiting_for = 3")
			return err == nil && asking == 2
		}, testkit.Timeout, 5*time.Millisecond, "both ask")
		require.Equal(t, "TASK_STATE_INPUT_REQUIRED", send(t, h.Client, text("m-2", "2026", "", "", id)).Status.State)
		for ended := false; !ended; {
			e := s.must()
			require.NotEqual(t, "TASK_STATE_WORKING", e.state(), "another agent asks")
			ended = e.StatusUpdate != nil && e.StatusUpdate.Status.Message != nil && strings.HasSuffix(e.StatusUpdate.Status.Message.Parts[0].Text, "success")
		}
		require.Equal(t, "TASK_STATE_COMPLETED", send(t, h.Client, text("m-3", "2026", "", "", id)).Status.State)
		require.NotEmpty(t, s.rest())
	})
}

// question returns the task of a stream, which begins with it, and its first question.
func (s *stream) question() (id string, question *message) {
	s.t.Helper()
	first := s.must()
	if first.state() == "TASK_STATE_INPUT_REQUIRED" {
		return first.Task.ID, first.Task.Status.Message
	}
	for {
		if e := s.must(); e.state() == "TASK_STATE_INPUT_REQUIRED" {
			return first.Task.ID, e.StatusUpdate.Status.Message
		}
	}
}

// TestWorkflowStreams: the stream of a workflow has its steps, its pauses and its results, and continues after any event.
func TestWorkflowStreams(t *testing.T) {
	t.Parallel()
	withWorkflows(t, "over both bindings", func(t *testing.T, h *harness) {
		for i, path := range []string{"", "/message:stream"} {
			id := []string{"m-1", "m-2"}[i]
			params := `{"message":` + steps(id, approved) + `}`
			if path == "" {
				params = `{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":` + params + `}`
			}
			s := open(t, h.Client, path, params)
			task, question := s.question()
			require.Equal(t, getTask(t, h.Client, task).Status.Message, question)
			other := open(t, h.Client, "/tasks/"+task+":subscribe", "")
			require.Equal(t, "TASK_STATE_INPUT_REQUIRED", other.must().state())
			send(t, h.Client, text("d-"+id, "approve", "", "", task), returnImmediately)
			all := s.rest()
			require.Equal(t, all, other.rest(), "streams agree")
			var seen []string
			for _, e := range all {
				if e.ArtifactUpdate != nil {
					require.True(t, e.ArtifactUpdate.LastChunk)
					seen = append(seen, e.ArtifactUpdate.Artifact.ArtifactID)
				} else if m := e.StatusUpdate.Status.Message; m != nil {
					seen = append(seen, m.Parts[0].Text)
				} else {
					seen = append(seen, e.state())
				}
			}
			require.Equal(t, []string{"TASK_STATE_WORKING", "t2: running", "step-t2", "t2: success", "TASK_STATE_COMPLETED"}, seen)
			for _, last := range all[1:3] { // a client that misses the status after a result receives both again
				resumed := open(t, h.Client, "/tasks/"+task+":subscribe", "", "Last-Event-ID", last.id)
				require.Equal(t, all[2:], resumed.rest(), "a stream continues, also after the end")
			}
			resumed := open(t, h.Client, "/tasks/"+task+":subscribe", "", "Last-Event-ID", all[len(all)-1].id)
			require.Empty(t, resumed.rest())
		}
	})
	withWorkflows(t, "pushes", func(t *testing.T, h *harness) {
		r := receive(t, nil)
		asked := send(t, h.Client, steps("m-1", approved), `{"taskPushNotificationConfig":{"url":"`+r.url+`"}}`)
		got := r.until(t, "TASK_STATE_INPUT_REQUIRED")
		require.Equal(t, asked.Status.Message, got[len(got)-1].StatusUpdate.Status.Message)
		done := send(t, h.Client, text("m-2", "approve", "", "", asked.ID))
		got = r.until(t, "TASK_STATE_COMPLETED")
		require.Equal(t, done.Artifacts, got[len(got)-1].Task.Artifacts)
		require.Eventually(t, func() bool {
			hooks, err := h.hooks.OfTask(t.Context(), asked.ID)
			return err == nil && len(hooks) == 1 && !hooks[0].Enabled
		}, testkit.Timeout, 5*time.Millisecond, "the configuration ends with the workflow")
	})
}

// TestLegacyWorkflows: version 0.3 starts workflows and decides on their pauses.
func TestLegacyWorkflows(t *testing.T) {
	t.Parallel()
	withWorkflows(t, "start, question, decision", func(t *testing.T, h *harness) {
		call := func(method, message string) (out struct {
			Result struct {
				Kind, ID string
				Status   struct {
					State   string
					Message struct {
						Parts    []struct{ Kind, Text string }
						Metadata map[string]any
					}
				}
				Artifacts []struct{ ArtifactID string }
			}
		}) {
			resp := h.Do(t, http.MethodPost, "/a2a", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"message":`+message+`}}`)
			require.NoError(t, json.Unmarshal(resp.Body, &out), "%s", resp.Body)
			return out
		}
		asked := call("message/send", `{"kind":"message","messageId":"m-1","role":"user","parts":[{"kind":"data","data":{"workflow":{"tasks":`+approved+`}}}],"metadata":{"capability":"execute_workflow"}}`).Result
		require.Equal(t, []string{"task", "input-required"}, []string{asked.Kind, asked.Status.State})
		require.Contains(t, asked.Status.Message.Parts[0].Text, "Reply with one of: approve, reject")
		require.Equal(t, []any{"approve", "reject"}, asked.Status.Message.Metadata["options"])
		done := call("message/send", `{"kind":"message","messageId":"m-2","role":"user","taskId":"`+asked.ID+`","parts":[{"kind":"text","text":"approve"}]}`).Result
		require.Equal(t, "completed", done.Status.State)
		require.Len(t, done.Artifacts, 2)
	})
}
