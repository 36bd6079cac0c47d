package registry_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/registry"
	"comet/internal/registry/roster"
	"comet/store"
	"comet/store/storetest"
)

// TestImportByABoundToken imports with a token that is bound to an agent.
func TestImportByABoundToken(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, f *fixture) {
		by := writer()
		by.AgentID = new("orch-personnel")
		f.create(t, specialist("finance", "orch-personnel"), specialist("foreign", "orch-business"))
		agent := func(id, level, parent string) string {
			return fmt.Sprintf("  - {id: %s, name: %s, level: %s, sphere_id: 1, parent_id: %s}\n", id, id, level, parent)
		}
		report, err := f.load(t, by, "version: 1\nagents:\n"+agent("meals", "3", "health")+agent("health", "2", "orch-personnel")+agent("bills", "3", "finance"))
		require.NoError(t, err, "a new agent may be the parent of another one")
		require.Equal(t, 3, report.Created)
		for name, entries := range map[string]string{
			"a new agent of another parent": agent("x", "3", "foreign"),
			"an agent of another parent":    agent("foreign", "2", "orch-personnel"),
			"an agent to another parent":    agent("bills", "3", "foreign"),
			"below one of another parent":   agent("x", "3", "y") + agent("y", "2", "orch-business"),
			"through one that moves":        agent("foreign", "2", "orch-personnel") + agent("x", "3", "foreign"),
		} {
			_, err := f.load(t, by, "version: 1\nagents:\n"+entries)
			require.Equal(t, errs.ForeignAgent, errs.CodeOf(err), name)
		}
		require.Equal(t, "finance", *f.agent(t, "bills").ParentID)
	})
}

// TestImportByABoundTokenNeedsAConstantNumberOfReads compares the reads of imports of different sizes.
func TestImportByABoundTokenNeedsAConstantNumberOfReads(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, f *fixture) {
		f.create(t, specialist("finance", "orch-personnel"))
		by := writer()
		by.AgentID = new("finance")
		var reads atomic.Int64
		require.NoError(t, f.db.Close())
		opts := f.db.Options
		opts.Connector = storetest.Statements(func(s storetest.Statement) {
			if strings.Contains(s.Query, "RECURSIVE") {
				reads.Add(1)
			}
		})
		s, err := store.Open(t.Context(), opts)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		reg := registry.New(s, nil)
		for _, dryRun := range []bool{true, false} {
			count := func(from, to int) int64 {
				var text strings.Builder
				text.WriteString("version: 1\nagents:\n")
				for i := range to {
					fmt.Fprintf(&text, "  - {id: assistant-%03d, name: From %d, level: 3, sphere_id: 1, parent_id: finance}\n", i, from)
				}
				doc, found := roster.Parse([]byte(text.String()), input.YAML)
				before := reads.Load()
				_, err := reg.Import(t.Context(), by, doc, found, dryRun, nil)
				require.NoError(t, err)
				return reads.Load() - before
			}
			require.Equal(t, count(0, 1), count(1, 100), "new agents")
			require.Equal(t, count(2, 1), count(3, 100), "changed agents")
		}
		_, err = s.Agents(t.Context()).Get("assistant-099")
		require.NoError(t, err)
	})
}
