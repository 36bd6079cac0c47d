package tools_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/models"
	"comet/store/storetest"
)

func TestAnUpstreamIsAnAgent(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		paper := mcptest.NewPaper(t, "Paper-1").Fails("the printer is on fire")
		began, ended := paper.Held()
		s := toolstest.Start(t, db, nil, paper)
		agentID, admin := s.AgentOf("Paper-1"), testkit.Admin()
		s.Work.WaitForWorker(t, agentID, func(w models.Worker) bool { return w.State == models.WorkerOnline })

		t.Run("it is in the registry", func(t *testing.T) {
			var a models.AgentDetail
			toolstest.Eventually(t, func() bool {
				var err error
				a, err = s.Registry.Get(t.Context(), agentID)
				return err == nil && len(a.Capabilities) == 5
			}, "its tools are its capabilities")
			require.EqualValues(t, 2, a.Level)
			require.Equal(t, 8, *a.SphereID)
			require.Equal(t, 555, a.FrequencyHz)
			require.Equal(t, "orch-my-team", *a.ParentID)
			require.Equal(t, []string{"custom:Paper-1:echo", "custom:Paper-1:fail", "custom:Paper-1:held", "custom:Paper-1:note", "custom:Paper-1:shred"}, a.Capabilities)
		})

		t.Run("a tool executes a task", func(t *testing.T) {
			before := used(t, s, agentID)
			task := submitAndWait(t, s, admin, "custom:Paper-1:echo", `{"a":1}`)
			require.Equal(t, models.TaskDone, task.State, "%+v", task)
			require.JSONEq(t, `{"a":1}`, output(t, s, task))
			require.Positive(t, task.Tokens)
			require.Equal(t, before+task.Tokens, used(t, s, agentID), "its agent is charged, as for any task")
			calls := s.Admin().Calls(t, tools.ToolCallQuery{TaskID: task.ID})
			require.Len(t, calls, 1)
			require.Equal(t, tools.SourceTask, calls[0].Source)
			require.Equal(t, agentID, calls[0].AgentID)
		})

		t.Run("a tool that fails fails the task", func(t *testing.T) {
			task := submitAndWait(t, s, admin, "custom:Paper-1:fail", "{}")
			require.Equal(t, models.TaskFailed, task.State)
			require.Contains(t, task.Error, "the printer is on fire")
		})

		t.Run("the tool policy of the requester applies", func(t *testing.T) {
			c := s.Client(t, "", models.ScopeToolsCall, models.ScopeMessagesSend, models.ScopeTasksRead)
			c.SetPolicy(t, `{"deny":[{"tool":"Paper-1:note"}]}`)
			before := paper.Calls()
			task := submitAndWait(t, s, c.Principal, "custom:Paper-1:note", "{}")
			require.Equal(t, models.TaskFailed, task.State)
			require.Contains(t, task.Error, "TOOL_NOT_FOUND")
			require.Equal(t, before, paper.Calls())
		})

		t.Run("a cancelled task ends the call", func(t *testing.T) {
			task := submit(t, s, admin, "custom:Paper-1:held", "{}")
			testkit.Receive(t, began)
			s.Work.WaitForTask(t, task.ID, func(task models.Task) bool { return task.Progress == 25 })
			_, err := s.Work.Cancel(t.Context(), task.ID, "no longer needed", nil)
			require.NoError(t, err)
			require.ErrorIs(t, testkit.Receive(t, ended), context.Canceled)
			require.Equal(t, models.TaskCancelled, s.Work.WaitForTask(t, task.ID, testkit.Ended).State)
		})

		t.Run("a removed upstream gets no tasks", func(t *testing.T) {
			mcptest.WriteServers(t, s.File)
			require.NoError(t, s.ReloadUpstreams(t.Context()))
			s.Work.WaitForWorker(t, agentID, func(w models.Worker) bool { return w.State == models.WorkerOffline })
		})
	})
}

// TestATaskIsNotRepeatedBlindly: if the result of a call that may have acted was lost, its task fails and the call is not
// repeated, unless the tool may be repeated.
func TestATaskIsNotRepeatedBlindly(t *testing.T) {
	t.Parallel()
	type loss = func(t *testing.T, s *toolstest.Tools, paper *mcptest.Server) *toolstest.Tools
	timeout := func(_ *testing.T, s *toolstest.Tools, _ *mcptest.Server) *toolstest.Tools {
		s.DB.Clock.Advance(time.Second)
		return s
	}
	for name, c := range map[string]struct {
		class    *mcp.ToolAnnotations
		lose     loss
		repeated bool
	}{
		"a call that took too long":                       {nil, timeout, false},
		"a call of a write tool that took too long":       {mcptest.Writes(), timeout, false},
		"a call of a read tool that took too long":        {mcptest.Reads(), timeout, true},
		"a call of an idempotent tool that took too long": {&mcp.ToolAnnotations{IdempotentHint: true}, timeout, true},
		"a call whose connection has ended": {nil, func(_ *testing.T, s *toolstest.Tools, paper *mcptest.Server) *toolstest.Tools {
			paper.CloseConnections()
			return s
		}, false},
		"a call whose server has stopped": {nil, func(t *testing.T, s *toolstest.Tools, paper *mcptest.Server) *toolstest.Tools {
			t.Helper()
			return s.Restart(t, paper)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T, db *storetest.DB) {
				began := make(chan struct{})
				paper := mcptest.New(t, "paper")
				paper.Tool(&mcp.Tool{Name: "act", Annotations: c.class}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					if paper.Calls() > 1 {
						return mcptest.Texts("done"), nil
					}
					close(began)
					<-ctx.Done()
					return nil, ctx.Err()
				})
				s := toolstest.Start(t, db, nil, paper)
				s.Work.WaitForWorker(t, s.AgentOf("paper"), func(w models.Worker) bool { return w.State == models.WorkerOnline })
				made, err := s.Work.Submit(t.Context(), testkit.Admin(), orchestrator.Submission{
					Capabilities: []string{"custom:paper:act"}, Parameters: []byte("{}"), Override: orchestrator.Override{TimeoutMS: 1000},
				}, nil)
				require.NoError(t, err)
				testkit.Receive(t, began)
				s = c.lose(t, s, paper)
				begun := time.Now()
				task := s.Work.WaitForTask(t, made.Task.ID, func(task models.Task) bool {
					// After 5 seconds the worker has reported the end of the attempt, or given up.
					lost := task.WaitingFor == models.NotWaiting && task.Attempt == 1 && time.Since(begun) > 10*time.Second
					if left := task.Deadline.Sub(db.Now()); left > 0 && (lost || task.WaitingFor == models.WaitForRetry) {
						db.Clock.Advance(left)
					}
					return task.State.Ended()
				})
				if c.repeated {
					require.Equal(t, models.TaskDone, task.State, task.Error)
					require.Greater(t, paper.Calls(), int64(1))
					return
				}
				require.Equal(t, models.TaskFailed, task.State)
				require.Equal(t, string(orchestrator.FailureWork), task.ErrorCode)
				require.Contains(t, task.Error, "may have acted")
				require.JSONEq(t, `{"may_have_acted":true}`, string(task.Detail))
				require.EqualValues(t, 1, paper.Calls())
			})
		})
	}
}

// TestAnAgentOfAnotherKindKeepsItsID checks that an upstream does not take over an agent with the id
// of its own agent: its tools can be called, but not with tasks.
func TestAnAgentOfAnotherKindKeepsItsID(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		paper := mcptest.NewPaper(t, "paper")
		s := toolstest.New(t, db, nil, paper)
		s.AddAgent(t, s.AgentOf("paper"), 1000)
		require.NoError(t, s.StartServices(t))
		s.WaitForTools(t, "paper")
		a, err := s.Registry.Get(t.Context(), s.AgentOf("paper"))
		require.NoError(t, err)
		require.Empty(t, a.Capabilities)
		s.Admin().RequireSays(t, "noted", "paper:note", nil)
		_, err = s.Registry.Get(t.Context(), s.AgentOf("ink"))
		toolstest.RequireError(t, err, errs.NotFound)
	})
}

// TestCapabilitiesAreToolsThatCanBeCalled checks that a new tool can be called once the upstream's agent has it as a
// capability, also while the rest of the change is delayed.
func TestCapabilitiesAreToolsThatCanBeCalled(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		paper := mcptest.NewPaper(t, "paper")
		s := toolstest.Start(t, db, nil, paper)
		release := s.HoldWorkers(func(tools func() int) {
			before := tools()
			paper.Tool(&mcp.Tool{Name: "fold"}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return mcptest.Texts("folded"), nil
			})
			toolstest.Eventually(t, func() bool { return tools() > before }, "the new tool is known")
		}, "paper")
		t.Cleanup(release) // before the services stop
		toolstest.Eventually(t, func() bool {
			a, err := s.Registry.Get(t.Context(), s.AgentOf("paper"))
			return err == nil && slices.Contains(a.Capabilities, "custom:paper:fold")
		}, "the agent has the tool")
		s.Admin().RequireSays(t, "folded", "paper:fold", nil)
	})
}
