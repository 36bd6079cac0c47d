package browser

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// addServers registers MCP servers of npm: one for files of a folder, which it returns, and one with a memory.
func addServers(s *server) (folder string) {
	folder = s.t.TempDir()
	require.NoError(s.t, os.WriteFile(filepath.Join(folder, "notes.txt"), []byte("buy tea"), 0o600))
	bin := filepath.Join(os.Getenv("MCP_SERVERS"), "node_modules", ".bin")
	s.do(http.MethodPut, "/api/v1/upstreams/files", object{"command": filepath.Join(bin, "mcp-server-filesystem"), "args": []string{folder}}, nil)
	s.do(http.MethodPut, "/api/v1/upstreams/memory", object{"command": filepath.Join(bin, "mcp-server-memory"), "env": object{"MEMORY_FILE_PATH": filepath.Join(folder, "memory.json")}}, nil)
	for _, id := range []string{"files", "memory"} {
		eventually(s.t, "the tools of "+id+" can be called", func() bool {
			var list struct{ Tools []object }
			s.do(http.MethodGet, "/api/v1/tools?server="+id, nil, &list)
			return len(list.Tools) > 0
		})
	}
	return folder
}

// startWorkflow starts a workflow that writes a file after an approval, and returns its id once it waits.
func startWorkflow(s *server, folder, content string) string {
	var w struct {
		ID     string `json:"workflow_id"`
		Status string
	}
	s.do(http.MethodPost, "/api/v1/workflows", object{"workflow": object{"tasks": []object{
		{"id": "read", "tool": "files:read_text_file", "arguments": object{"path": filepath.Join(folder, "notes.txt")}},
		{"id": "write", "tool": "files:write_file", "arguments": object{"path": filepath.Join(folder, "copy.txt"), "content": content}, "depends_on": []string{"read"}},
	}}, "config": object{"approvals": "write"}}, &w)
	eventually(s.t, "the workflow waits for an approval", func() bool {
		var now struct{ Status string }
		s.do(http.MethodGet, "/api/v1/workflows/"+w.ID, nil, &now)
		return now.Status == "approval_required"
	})
	return w.ID
}

// TestWorkflows approves and rejects the steps of workflows in the page; an approval of other steps than those that were
// shown is refused.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	folder := addServers(s)
	p := open(t, s, "status of 409")
	approved := startWorkflow(s, folder, "approved text")
	p.logIn(s.token, "/ui/")
	p.shows(approved)
	p.visit("/ui/workflows")
	p.shows(approved)
	p.inspect([]view{{"workflow-approval", "/ui/workflows/" + approved, "approved text"}})
	p.show("light", 1440)
	p.click("Approve")
	p.shows("complete")
	written, err := os.ReadFile(filepath.Join(folder, "copy.txt"))
	require.NoError(t, err)
	assert.Equal(t, "approved text", string(written))
	p.accessible("a completed workflow")

	rejected := startWorkflow(s, folder, "rejected text")
	p.visit("/ui/workflows/" + rejected)
	p.shows("rejected text")
	p.click("Reject")
	p.confirm("Reject")
	eventually(t, "the workflow is rejected", func() bool { return s.workflowStatus(rejected) == "rejected" })
	written, err = os.ReadFile(filepath.Join(folder, "copy.txt"))
	require.NoError(t, err)
	assert.Equal(t, "approved text", string(written))
}

// TestTools shows MCP servers, calls a tool, and draws the graph of tools that are used together.
func TestTools(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	folder := addServers(s)
	code := fmt.Sprintf(`const text = await mcp.files.read_text_file({path: %q}); await mcp.memory.create_entities({entities: [{name: "n", entityType: "note", observations: [String(text)]}]}); return await mcp.memory.read_graph({})`, filepath.Join(folder, "notes.txt"))
	for range 3 {
		s.do(http.MethodPost, "/api/v1/tools/call", object{"tool": "agentcards:execute_code", "arguments": object{"code": code, "intent": "read files and remember entities"}}, nil)
	}
	eventually(t, "the tools are in the graph", func() bool {
		var g struct{ Nodes []object }
		s.do(http.MethodGet, "/api/v1/tools/graph", nil, &g)
		return len(g.Nodes) >= 3
	})
	p := open(t, s, "")
	p.logIn(s.token, "/ui/tools")
	p.inspect([]view{
		{"tools-servers", "/ui/tools", "memory"},
		{"tools-server", "/ui/tools/files", "read_text_file"},
		{"tool", "/ui/tools/files:write_file", "write_file"},
		{"tools-catalogue", "/ui/tools?tab=catalogue", "read_text_file"},
		{"tools-search", "/ui/tools?tab=search&query=read+a+file", "files:read_text_file"},
		{"tools-policies", "/ui/tools?tab=policies", "bootstrap-admin"},
		{"tools-calls", "/ui/tools?tab=calls", "success"},
		{"tools-graph", "/ui/tools?tab=graph", "read_text_file"},
	})
	p.until(`document.querySelector("[data-drawn] canvas")`)
}

// TestTabs opens more tabs of one browser than it opens connections to a server: all are live.
func TestTabs(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	first := open(t, s, "")
	first.logIn(s.token, "/ui/events")
	tabs := []*tab{first}
	for range 7 {
		p := first.another()
		p.visit("/ui/events")
		tabs = append(tabs, p)
	}
	for _, p := range tabs {
		p.until(`document.body.dataset.live === "on"`)
	}
	s.createAgent("seen-by-all")
	for _, p := range tabs {
		p.shows("seen-by-all")
	}
}
