package tools_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/models"
	"comet/store/storetest"
)

// quarantined has tools with an upstream whose tool note changes its definition.
type quarantined struct {
	*toolstest.Tools
	paper *mcptest.Server
}

// changes replaces the tool note, whose description changes with its text.
func (q quarantined) changes(text string) { q.paper.Says("note", text, nil) }

// waitFor waits until the tool note has a state, and returns its definition.
func (q quarantined) waitFor(t *testing.T, state string) (d models.ToolDefinition) {
	t.Helper()
	toolstest.Eventually(t, func() bool {
		d = definition(t, q.Tools, "paper", "note")
		return d.State == state
	}, "the tool is "+state)
	return d
}

// waitUntilVisible waits until the tool note can be called, or cannot.
func (q quarantined) waitUntilVisible(t *testing.T, want bool) {
	t.Helper()
	toolstest.Eventually(t, func() bool { return (len(q.Admin().Tools(t, "paper")) == 2) == want }, "the tool becomes visible or hidden")
}

// requireRejected requires that the tool note cannot be called and is not found.
func (q quarantined) requireRejected(t *testing.T) {
	t.Helper()
	before := q.paper.Calls()
	text := q.Admin().RequireFails(t, "TOOL_NOT_FOUND", "paper:note", nil)
	require.Contains(t, text, "see comet upstreams tools paper")
	require.NotContains(t, text, "approve paper", "the error does not tell a caller to approve the tool")
	require.NotContains(t, q.Admin().Search(t, "note says"), "paper:note")
	require.Equal(t, before, q.paper.Calls())
}

// approve approves the definition of the tool note with a digest.
func (q quarantined) approve(t *testing.T, digest string) error {
	t.Helper()
	_, err := q.Approve(t.Context(), testkit.Admin(), "paper", "note", digest)
	return err
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		paper := mcptest.New(t, "paper").Echo().Says("note", "first", nil)
		q := quarantined{toolstest.Start(t, db, nil, paper), paper}
		admin := q.Admin()
		admin.RequireSays(t, "first", "paper:note", nil)
		approved := q.waitFor(t, "approved")

		q.changes("second")
		second := q.waitFor(t, "quarantined")
		require.Equal(t, approved.Digest, second.Digest)
		q.waitUntilVisible(t, false)
		q.requireRejected(t)
		admin.RequireSays(t, "{}", "paper:echo", nil) // the other tools are not affected

		q.changes("third") // during the review of the second
		toolstest.Eventually(t, func() bool { return definition(t, q.Tools, "paper", "note").PendingDigest != second.PendingDigest }, "the definition has changed again")
		toolstest.RequireError(t, q.approve(t, second.PendingDigest), errs.PreconditionFailed, "changed again")
		q.requireRejected(t)
		third := q.waitFor(t, "quarantined")
		require.NoError(t, q.approve(t, third.PendingDigest))
		require.Equal(t, third.PendingDigest, q.waitFor(t, "approved").Digest)
		q.waitUntilVisible(t, true)
		admin.RequireSays(t, "third", "paper:note", nil)
		require.NoError(t, q.approve(t, ""), "an approved definition can be approved again")

		q.changes("fourth")
		q.waitFor(t, "quarantined")
		q.waitUntilVisible(t, false)
		q.changes("third")
		require.Equal(t, third.PendingDigest, q.waitFor(t, "approved").Digest, "an approved definition needs no approval")
		q.waitUntilVisible(t, true)
		admin.RequireSays(t, "third", "paper:note", nil)
		_, err := q.Approve(t.Context(), testkit.Admin(), "paper", "nothing", "")
		toolstest.RequireError(t, err, errs.NotFound)

		t.Run("survives a restart", func(t *testing.T) {
			q.changes("fifth")
			q.waitFor(t, "quarantined")
			next := q.Restart(t, paper)
			require.Equal(t, []string{"paper:echo"}, next.Admin().Tools(t, "paper"))
			require.Equal(t, "quarantined", definition(t, next, "paper", "note").State)
		})
	})
}

func TestTrustedChangesAreNotQuarantined(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		paper := mcptest.New(t, "paper").Says("note", "first", nil)
		s := toolstest.Start(t, db, &toolstest.Options{Tools: tools.Options{TrustChanges: true}}, paper)
		before := definition(t, s, "paper", "note").Digest
		paper.Says("note", "second", nil)
		toolstest.Eventually(t, func() bool { return definition(t, s, "paper", "note").Digest != before }, "the new definition is stored")
		require.Equal(t, "approved", definition(t, s, "paper", "note").State)
		s.Admin().RequireSays(t, "second", "paper:note", nil)
	})
}

func TestDefinitionsOfAnUnknownUpstream(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		s := toolstest.Start(t, db, nil)
		for _, id := range []string{"", "unknown"} {
			_, err := s.ToolDefinitions(t.Context(), id)
			toolstest.RequireError(t, err, errs.NotFound)
		}
		toolstest.RequireError(t, s.RestartUpstream("unknown"), errs.NotFound, "unknown")
	})
}

func TestNewUpstreamsAreQuarantined(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		paper, file := mcptest.New(t, "paper").Echo().Says("note", "first", nil), mcptest.NewPaper(t, "file")
		options := tools.Options{QuarantineNew: true, TrustChanges: true}
		s := toolstest.Start(t, db, &toolstest.Options{Tools: options}, file) // upstreams of the file are not affected
		_, err := s.PutUpstream(t.Context(), testkit.Admin(), "paper", fmt.Appendf(nil, `{"url":%q}`, paper.URL), nil)
		require.NoError(t, err)
		q := quarantined{s, paper}
		states := func() (out []string) {
			list, err := q.ToolDefinitions(t.Context(), "paper")
			require.NoError(t, err)
			for _, d := range list {
				out = append(out, d.Name+" "+d.State)
			}
			return out
		}
		toolstest.Eventually(t, func() bool {
			d, err := q.ToolDefinitions(t.Context(), "paper")
			return err == nil && len(d) == 2 && d[0].PendingDigest != ""
		}, "the tools are stored")
		require.Equal(t, []string{"echo quarantined", "note quarantined"}, states())
		toolstest.Eventually(t, func() bool {
			_, err := q.Admin().TryCall(t, "paper:note", nil)
			return err != nil && strings.Contains(err.Error(), "comet upstreams tools paper")
		}, "the quarantined tools are known")
		require.Empty(t, q.Admin().Tools(t, "paper"))
		q.requireRejected(t)

		list, err := q.ApproveUpstream(t.Context(), testkit.Admin(), "paper")
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Equal(t, []string{"echo approved", "note approved"}, states())
		require.Equal(t, testkit.Admin().Name, list[0].ApprovedBy)
		q.Admin().RequireSays(t, "first", "paper:note", nil)

		paper.Says("later", "later", nil) // a tool that an approved upstream adds
		toolstest.Eventually(t, func() bool {
			d, err := q.ToolDefinitions(t.Context(), "paper")
			return err == nil && len(d) == 3 && d[1].PendingDigest != ""
		}, "the new tool is stored")
		require.NoError(t, func() error { _, err := q.Approve(t.Context(), testkit.Admin(), "paper", "later", ""); return err }())
		q.Admin().RequireSays(t, "later", "paper:later", nil)
		_, err = q.ApproveUpstream(t.Context(), testkit.Admin(), "unknown")
		toolstest.RequireError(t, err, errs.NotFound)
	})
}
