package bus_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/bus"
)

func TestDocumentedSubjects(t *testing.T) {
	t.Parallel()
	const task = "0198c0de-7000-7000-8000-000000000001"
	for want, c := range map[string]struct {
		got  string
		kind bus.Kind
		name string
	}{
		"comet.wake.inbox.orch-business": {bus.WakeInbox("orch-business"), bus.WakeInboxes, "orch-business"},
		"comet.wake.task." + task:        {bus.WakeTask(task), bus.WakeTasks, task},
		"comet.wake.dispatch":            {bus.WakeDispatch(), bus.WakeDispatches, ""},
		"comet.wake.agents":              {bus.WakeAgents(), bus.WakeAgentIndexes, ""},
		"comet.wake.all":                 {bus.WakeAll(), bus.WakeEverything, ""},
		"comet.agents.infra-1.inbox":     {bus.AgentInbox("infra-1"), bus.AgentInboxes, "infra-1"},
		"comet.agents.infra-1.outbox":    {bus.AgentOutbox("infra-1"), bus.AgentOutboxes, "infra-1"},
		"comet.agents.a%2Eb%20%2A.inbox": {bus.AgentInbox("a.b *"), bus.AgentInboxes, "a.b *"},
		"comet.wake.inbox.%":             {bus.WakeInbox(""), bus.WakeInboxes, ""},
		"comet.wake.inbox.%25":           {bus.WakeInbox("%"), bus.WakeInboxes, "%"},
		"comet.wake.inbox.%C3%A9":        {bus.WakeInbox("é"), bus.WakeInboxes, "é"},
	} {
		require.Equal(t, want, c.got)
		kind, name, ok := bus.Parse(want)
		require.True(t, ok, want)
		require.Equal(t, c.kind, kind)
		require.Equal(t, c.name, name)
	}
	require.Len(t, bus.Kinds(), 7)
}

func TestOtherSpellingsOfSubjectsAreRejected(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{
		"", "comet", "comet.wake", "comet.wake.inbox", "comet.wake.inbox.", "comet.wake.inbox.*", "comet.wake.inbox.a.b", "comet.wake.inbox.%61",
		"comet.wake.inbox.%2e", "comet.wake.inbox.%2", "comet.wake.inbox.%%", "comet.wake.inbox.%ZZ", "comet.wake.inbox.a b",
		"comet.agents.inbox", "comet.agents..inbox", "comet.agents.a.INBOX", "comet.agents.a.inbox.b", "comet.wake.dispatch.a", "other.wake.dispatch",
	} {
		_, _, ok := bus.Parse(subject)
		require.False(t, ok, "%q", subject)
	}
}

// FuzzSubjects checks that every name is one token of a subject and is parsed again.
func FuzzSubjects(f *testing.F) {
	for _, name := range []string{"", "a", "a.b", "%", "%2E", "*", ">", " ", "\x00", "é", "\xff"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for subject, kind := range map[string]bus.Kind{
			bus.WakeInbox(name): bus.WakeInboxes, bus.WakeTask(name): bus.WakeTasks,
			bus.AgentInbox(name): bus.AgentInboxes, bus.AgentOutbox(name): bus.AgentOutboxes,
		} {
			require.Equal(t, strings.Count(string(kind), "."), strings.Count(subject, "."))
			gotKind, got, ok := bus.Parse(subject)
			require.True(t, ok)
			require.Equal(t, kind, gotKind)
			require.Equal(t, name, got)
		}
		// A parsed subject is formatted again as it was.
		if kind, got, ok := bus.Parse(name); ok && kind == bus.AgentInboxes {
			require.Equal(t, name, bus.AgentInbox(got))
		}
	})
}
