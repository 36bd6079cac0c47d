package browser

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

// startWorkflow starts a workflow with a step that must be approved, and returns its id.
func (s *server) startWorkflow() string {
	s.t.Helper()
	var started struct {
		ID     string `json:"workflow_id"`
		Status string
	}
	s.do(http.MethodPost, "/api/v1/workflows", object{"workflow": object{"tasks": []object{
		{"id": "numbers", "type": "code_execution", "code": "return [1, 2, 3]"},
		{"id": "sum", "type": "code_execution", "code": "return deps.numbers.reduce((a, b) => a + b)", "depends_on": []string{"numbers"}, "approve": true},
	}}}, &started)
	eventually(s.t, "the workflow waits for an approval", func() bool { return s.workflowStatus(started.ID) == "approval_required" })
	return started.ID
}

func (s *server) workflowStatus(id string) string {
	var w struct{ Status string }
	s.do(http.MethodGet, "/api/v1/workflows/"+id, nil, &w)
	return w.Status
}

// TestApprovals approves and rejects checkpoints, and checks that a checkpoint that was replaced while it was
// shown cannot be approved.
func TestApprovals(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	approved, rejected, stale := s.startWorkflow(), s.startWorkflow(), s.startWorkflow()
	p := open(t, s, "status of 409")
	p.logIn(s.token, "/ui/workflows/"+stale)
	p.until(`document.querySelector("[data-digest=verified]")`)
	p.inspect([]view{{"workflows", "/ui/workflows", stale}, {"workflow", "/ui/workflows/" + stale, "Approval required"}})
	p.show("light", 1440)
	p.visit("/ui/workflows/" + stale)
	p.shows("Approval required")
	p.until(`document.querySelector("[data-digest=verified]")`)
	s.do(http.MethodPost, "/api/v1/workflows/"+stale+"/replan", object{"workflow": object{"tasks": []object{
		{"id": "later", "type": "code_execution", "code": "return 4", "depends_on": []string{"sum"}},
	}}}, nil)
	p.shows("This checkpoint was replaced while you looked at it. Nothing was approved.")
	assert.True(t, eval[bool](p, "!"+find("Approve")), "what was replaced cannot be approved")
	p.accessible("replaced checkpoint")
	p.screenshot("workflow-replaced", "light", 1440)
	assert.Equal(t, "approval_required", s.workflowStatus(stale))
	p.click("Show the new checkpoint")
	p.click("Approve")
	eventually(t, "the workflow is complete", func() bool { return s.workflowStatus(stale) == "complete" })

	p.visit("/ui/workflows/" + approved)
	p.until(`document.querySelector("[data-digest=verified]")`)
	p.click("Approve")
	eventually(t, "the workflow is complete", func() bool { return s.workflowStatus(approved) == "complete" })
	p.shows("complete")

	p.inspect([]view{{"workflow-timeline", "/ui/workflows/" + approved + "?view=timeline&step=sum", "Result"}})
	p.until(`document.querySelectorAll(".timeline [role=listitem]").length === 2`)

	p.show("light", 1440)
	p.visit("/ui/workflows/" + rejected)
	p.click("Reject")
	p.shows("Reject this checkpoint?")
	p.click("Reject")
	eventually(t, "the workflow is rejected", func() bool { return s.workflowStatus(rejected) == "rejected" })
	p.shows("rejected")
}
