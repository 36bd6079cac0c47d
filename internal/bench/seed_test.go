package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/registry"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

const (
	population = 100_000 // agents in the registry, including the ten bootstrap agents
	family     = 5       // a specialist and its four assistants
	busy       = 1_000   // specialists with usage today
)

// day is the noon at which the clock of the benchmark starts, so that no run crosses midnight.
func day() time.Time { return time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC) }

// specialist and assistant return ids of the n-th family. Ids sort in the order of insertion, so
// that pages of a list differ only in their depth.
func specialist(n int) string   { return fmt.Sprintf("matter-%06d", n) }
func assistant(n, i int) string { return fmt.Sprintf("matter-%06d-%d", n, i) }

// families returns the number of families.
func families() int { return (population - 10) / family }

// seed fills the registry through the store.
func seed(tb testing.TB, s *store.Store) {
	tb.Helper()
	orchestrators := make([]string, registry.MaxSphere+1)
	require.NoError(tb, s.Agents(tb.Context()).Each(func(a models.Agent) error {
		if a.Level == models.LevelOrchestrator {
			orchestrators[*a.SphereID] = a.ID
		}
		return nil
	}))
	const bulk = 500
	for first := 0; first < families(); first += bulk {
		require.NoError(tb, s.Write(tb.Context(), func(tx *store.Tx) error {
			for n := first; n < min(first+bulk, families()); n++ {
				if err := seedFamily(tx, n, orchestrators); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

func seedFamily(tx *store.Tx, n int, orchestrators []string) error {
	sphere := n%registry.MaxSphere + 1
	head := seedAgent(tx.Now(), specialist(n), orchestrators[sphere], models.LevelSpecialist, sphere, n)
	head.FrequencyHz = 555 + n%2*111
	if err := tx.Agents().Insert(head); err != nil {
		return err
	}
	for i := range family - 1 {
		a := seedAgent(tx.Now(), assistant(n, i), head.ID, models.LevelAssistant, sphere, n*family+i)
		a.FrequencyHz, a.IsActive = 444, (n+i)%10 != 0
		if err := tx.Agents().Insert(a); err != nil {
			return err
		}
	}
	if n >= busy {
		return nil
	}
	if err := storetest.AddUsage(tx, head.ID, "nova/"+orchestrators[sphere]+"/"+head.ID, tx.Now(), 3450); err != nil {
		return err
	}
	outcomes := make([]store.OutcomeRow, 15)
	for i := range outcomes { // as many sessions as in the example of CHE·NU §2.5
		status := "success"
		if i == 0 {
			status = "failed"
		}
		outcomes[i] = store.OutcomeRow{AgentID: head.ID, SessionID: fmt.Sprint("session-", i), Status: status, DurationMS: new(int64(234)), At: tx.Now()}
	}
	return tx.Agents().AddOutcomes(outcomes)
}

func seedAgent(at time.Time, id, parent string, level models.Level, sphere, n int) models.Agent {
	words := []string{
		"budgeting", "expense_tracking", "savings", "invoicing", "accounting", "payroll", "email", "chat", "reminders",
		"data_analysis", "reporting", "forecasting", "writing", "editing", "design", "scheduling", "task_management",
	}
	return models.Agent{
		ID: id, Name: fmt.Sprintf("Agent of matter %06d", n), Level: level, Type: "clerk", SphereID: &sphere,
		Capabilities: []string{words[n%len(words)], words[(n+1)%len(words)], "custom:matter_" + fmt.Sprint(n%100)},
		Description:  "Looks after one matter of its sphere and reports to its parent",
		ParentID:     &parent, TokenBudget: level.DefaultBudget(), IsActive: true, Version: 1, CreatedAt: at, UpdatedAt: at,
	}
}
