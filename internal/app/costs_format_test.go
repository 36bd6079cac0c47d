package app_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// howToUpdate is printed with every difference.
const howToUpdate = "The operation costs something else than its transcript says. If that is intended, rewrite the transcripts with\n" +
	"  COMET_TEST_POSTGRES_URL=$(.ci/postgres start) go test ./internal/app -run TestCosts -update\n" +
	"and give the reason for every rise in the commit message."

// shared names the transactions of loops that write for several operations, by a statement that
// only they have, except the transactions of workflows with a budget. Their number varies, so all of them count as one.
func shared() map[string]string {
	return map[string]string{
		"UPDATE event_head": "numbering of events", "INSERT v5_messages": "V5 message log", "INSERT tool_calls": "audit of tool calls",
	}
}

func sharedBy(tx transaction) string {
	for shape, name := range shared() {
		if tx.touches(shape) && !tx.touches("UPDATE workflows") {
			return name
		}
	}
	return ""
}

// cost is the sum of what is counted.
type cost struct {
	commits, rollbacks, reads, writes int
	rows                              map[string]map[string]int64 // by table and verb
}

func (c *cost) count(list []statement) {
	for _, s := range list {
		if !s.writes() {
			c.reads++
			continue
		}
		c.writes++
		if c.rows[s.tables[0]] == nil {
			c.rows[s.tables[0]] = map[string]int64{}
		}
		c.rows[s.tables[0]][s.verb] += s.rows
	}
}

// total returns the number of written rows.
func (c *cost) total() (n int64) {
	for _, verbs := range c.rows {
		for _, rows := range verbs {
			n += rows
		}
	}
	return n
}

// block is a transaction, or a group of reads, in a transcript.
type block struct {
	title      string
	statements []statement
}

func (b block) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "    %s\n", b.title)
	for _, s := range b.statements {
		if s.writes() {
			fmt.Fprintf(&out, "      %s: %d\n", s.shape(), s.rows)
		} else {
			fmt.Fprintf(&out, "      %s\n", s.shape())
		}
	}
	return out.String()
}

// blocks separates the transactions of the request, in order, from all others, in a deterministic
// order.
func (s step) blocks() (within, outside []block) {
	merged, reads := map[string]*block{}, []statement(nil)
	for _, e := range s.entries {
		name := sharedBy(e.transaction)
		switch {
		case e.read && e.request == s.request:
			if last := len(within) - 1; last >= 0 && within[last].title == titleReads {
				within[last].statements = append(within[last].statements, e.statements...)
			} else {
				within = append(within, block{titleReads, e.statements})
			}
		case e.request == s.request:
			within = append(within, block{e.title(), e.statements})
		case name != "" && !e.rolledBack:
			if merged[name] == nil {
				merged[name] = &block{title: titleCommit + " (" + name + ")"}
			}
			merged[name].merge(e.statements)
		case e.read:
			reads = append(reads, e.statements...)
		default:
			outside = append(outside, block{e.title(), e.statements})
		}
	}
	if len(reads) > 0 {
		slices.SortFunc(reads, func(a, b statement) int { return cmp.Compare(a.shape(), b.shape()) })
		outside = append(outside, block{titleReads, reads})
	}
	slices.SortFunc(outside, func(a, b block) int { return cmp.Compare(a.String(), b.String()) })
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		outside = append(outside, *merged[name])
	}
	return within, outside
}

const titleReads, titleCommit, titleRollback = "no transaction", "commit", "rollback"

func (e entry) title() string {
	switch {
	case e.read:
		return titleReads
	case e.rolledBack:
		return titleRollback
	}
	return titleCommit
}

// merge adds the statements of another transaction of the same loop: each shape once, with the rows
// of all. The row that all of these transactions write counts once.
func (b *block) merge(list []statement) {
	for _, s := range list {
		i := slices.IndexFunc(b.statements, func(known statement) bool { return known.shape() == s.shape() })
		switch {
		case i < 0:
			b.statements = append(b.statements, s)
		case s.shape() != "UPDATE event_head":
			b.statements[i].rows += s.rows
		}
	}
}

// transcript returns the cost of an operation in the format of the golden file.
func (o *operation) transcript() string {
	sum := cost{rows: map[string]map[string]int64{}}
	var steps strings.Builder
	for _, s := range o.steps {
		fmt.Fprintf(&steps, "\n%s\n", s.name)
		within, outside := s.blocks()
		for _, part := range []struct {
			title  string
			blocks []block
		}{{"in the request", within}, {"outside of the request", outside}} {
			if len(part.blocks) > 0 {
				fmt.Fprintf(&steps, "  %s\n", part.title)
			}
			for _, b := range part.blocks {
				steps.WriteString(b.String())
				sum.count(b.statements)
				switch {
				case b.title == titleRollback:
					sum.rollbacks++
				case b.title != titleReads:
					sum.commits++
				}
			}
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "operation: %s\ncommits: %d\n", o.title, sum.commits)
	if sum.rollbacks > 0 {
		fmt.Fprintf(&out, "rollbacks: %d\n", sum.rollbacks)
	}
	fmt.Fprintf(&out, "statements: %d (reads %d, writes %d)\nrows written: %d\n", sum.reads+sum.writes, sum.reads, sum.writes, sum.total())
	for _, table := range slices.Sorted(maps.Keys(sum.rows)) {
		var parts []string
		for _, verb := range slices.Sorted(maps.Keys(sum.rows[table])) {
			parts = append(parts, fmt.Sprintf("%s %d", map[string]string{
				"INSERT": "inserted", "UPSERT": "inserted or updated", "UPDATE": "updated", "DELETE": "deleted",
			}[verb], sum.rows[table][verb]))
		}
		fmt.Fprintf(&out, "  %s: %s\n", table, strings.Join(parts, ", "))
	}
	return out.String() + steps.String()
}

// compare compares the transcript with its golden file, or rewrites the file.
func (o *operation) compare(t *testing.T, name string) {
	t.Helper()
	path := filepath.Join("testdata", "costs", o.m.database, name+".txt")
	got := o.transcript()
	if *updateCosts {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, howToUpdate)
	assert.Equal(t, string(want), got, "%s\n%s", path, howToUpdate) // the others are compared too
}
