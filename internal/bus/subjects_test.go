package bus_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/bus"
)

func kinds() []bus.Kind {
	return []bus.Kind{
		bus.WakeInboxes, bus.WakeProgress, bus.WakeTasks, bus.WakeDispatches, bus.WakeAgentIndexes, bus.WakeEverything, bus.AgentInboxes, bus.AgentOutboxes,
	}
}

func TestDocumentedSubjects(t *testing.T) {
	t.Parallel()
	const task = "0198c0de-7000-7000-8000-000000000001"
	for want, c := range map[string]struct {
		got  string
		kind bus.Kind
		name string
	}{
		"comet.wake.inbox.orch-business":     {bus.WakeInboxes.Of("orch-business"), bus.WakeInboxes, "orch-business"},
		"comet.wake.task." + task:            {bus.WakeTasks.Of(task), bus.WakeTasks, task},
		"comet.wake.progress.orch%2F" + task: {bus.WakeProgress.Of("orch/" + task), bus.WakeProgress, "orch/" + task},
		"comet.wake.dispatch":                {string(bus.WakeDispatches), bus.WakeDispatches, ""},
		"comet.wake.agents":                  {string(bus.WakeAgentIndexes), bus.WakeAgentIndexes, ""},
		"comet.wake.all":                     {string(bus.WakeEverything), bus.WakeEverything, ""},
		"comet.agents.infra-1.inbox":         {bus.AgentInboxes.Of("infra-1"), bus.AgentInboxes, "infra-1"},
		"comet.agents.infra-1.outbox":        {bus.AgentOutboxes.Of("infra-1"), bus.AgentOutboxes, "infra-1"},
		"comet.agents.a%2Eb%20%2A.inbox":     {bus.AgentInboxes.Of("a.b *"), bus.AgentInboxes, "a.b *"},
		"comet.wake.inbox.%":                 {bus.WakeInboxes.Of(""), bus.WakeInboxes, ""},
		"comet.wake.inbox.%25":               {bus.WakeInboxes.Of("%"), bus.WakeInboxes, "%"},
		"comet.wake.inbox.%C3%A9":            {bus.WakeInboxes.Of("é"), bus.WakeInboxes, "é"},
	} {
		require.Equal(t, want, c.got)
		for _, kind := range kinds() {
			name, ok := kind.NameIn(want)
			require.Equal(t, kind == c.kind, ok, want)
			if ok {
				require.Equal(t, c.name, name)
			}
		}
	}
}

func TestOtherSpellingsOfSubjectsAreRejected(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{
		"", "comet", "comet.wake", "comet.wake.inbox", "comet.wake.inbox.", "comet.wake.inbox.*", "comet.wake.inbox.a.b", "comet.wake.inbox.%61",
		"comet.wake.inbox.%2e", "comet.wake.inbox.%2", "comet.wake.inbox.%%", "comet.wake.inbox.%ZZ", "comet.wake.inbox.a b",
		"comet.agents.inbox", "comet.agents..inbox", "comet.agents.a.INBOX", "comet.agents.a.inbox.b", "comet.wake.dispatch.a", "other.wake.dispatch",
	} {
		for _, kind := range kinds() {
			_, ok := kind.NameIn(subject)
			require.False(t, ok, "%q", subject)
		}
	}
}

// FuzzSubjects checks that every name is one token of a subject and is parsed again.
func FuzzSubjects(f *testing.F) {
	for _, name := range []string{"", "a", "a.b", "%", "%2E", "*", ">", " ", "\x00", "é", "\xff"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for subject, kind := range map[string]bus.Kind{
			bus.WakeInboxes.Of(name): bus.WakeInboxes, bus.WakeTasks.Of(name): bus.WakeTasks,
			bus.AgentInboxes.Of(name): bus.AgentInboxes, bus.AgentOutboxes.Of(name): bus.AgentOutboxes,
		} {
			require.Equal(t, strings.Count(string(kind), "."), strings.Count(subject, "."))
			got, ok := kind.NameIn(subject)
			require.True(t, ok)
			require.Equal(t, name, got)
		}
		// A parsed subject is formatted again as it was.
		if got, ok := bus.AgentInboxes.NameIn(name); ok {
			require.Equal(t, name, bus.AgentInboxes.Of(got))
		}
	})
}
