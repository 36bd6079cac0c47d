package usage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/store/ledgercheck"
	"comet/store/storetest"
)

func operator() models.Principal { return models.Principal{Name: "ops", TokenID: "token-ops"} }

// exec runs a statement that falsifies a row.
func (f *fixture) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	f.write(t, func(tx *store.Tx) error {
		n, err := tx.Exec(query, args...)
		require.NotZero(t, n, query)
		return err
	})
}

// repair repairs the ledger and requires that the corrections include want, that the audit logs and the
// events contain every correction, that nothing differs afterwards, and that another repair changes nothing.
func (f *fixture) repair(t *testing.T, want ...ledgercheck.Difference) ledgercheck.Verification {
	t.Helper()
	out, err := f.Repair(t.Context(), operator())
	require.NoError(t, err)
	require.Empty(t, out.Differences)
	require.Len(t, out.Corrections, out.Corrected)
	recorded := 0
	made := make([]ledgercheck.Difference, len(out.Corrections))
	for i, d := range out.Corrections {
		require.NotEmpty(t, d.Correction)
		made[i], made[i].Correction = d, ""
		field := strings.TrimSpace(d.What + " " + d.Where)
		require.Contains(t, f.corrections(t, d.AgentID), fmt.Sprint(field, " ", d.Stored, " ", d.Computed))
	}
	for _, d := range want {
		require.Contains(t, made, d)
	}
	for _, text := range f.events(t, events.LedgerCorrected) {
		var data struct {
			Actor       string
			Corrections []ledgercheck.Difference
		}
		require.NoError(t, json.Unmarshal([]byte(text), &data))
		require.Equal(t, "ops", data.Actor)
		recorded += len(data.Corrections)
	}
	require.Equal(t, out.Corrected, recorded)
	again, err := f.Repair(t.Context(), operator())
	require.NoError(t, err)
	require.Zero(t, again.Corrected, "%+v", again.Corrections)
	return out
}

// events returns the data of the events of a type.
func (f *fixture) events(t *testing.T, kind models.EventType) []string {
	t.Helper()
	out, err := store.Rows[string](f.db.Reads(t.Context()), "SELECT data FROM events WHERE type = ?", kind)
	require.NoError(t, err)
	return out
}

// corrections returns the corrections in an agent's audit log.
func (f *fixture) corrections(t *testing.T, id string) (out []string) {
	t.Helper()
	entries, err := f.db.Agents(t.Context()).AuditTrail(id, 0, 100)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Action == models.AuditLedgerCorrected {
			require.Equal(t, "token-ops", e.ActorID)
			for _, c := range e.Changes {
				out = append(out, fmt.Sprint(c.Field, " ", c.From, " ", c.To))
			}
		}
	}
	return out
}

func TestRepair(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "RecordsTheLostFactOfASettlement", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		held := f.hold(t, "help", 500)
		_, err := f.settle("help", held.ID, 420)
		require.NoError(t, err)
		f.exec(t, "DELETE FROM usage_facts WHERE reservation_id = ?", held.ID)
		out := f.repair(t, ledgercheck.Difference{AgentID: "help", What: "settled", Where: held.ID, Stored: 420})
		require.Len(t, out.Corrections, 1, "the window and the account were right")
		require.EqualValues(t, 420, f.usage(t, "help").UsedToday)
		again, err := f.settle("help", held.ID, 420)
		require.NoError(t, err)
		require.True(t, again.Replayed)
	})

	onEachDatabase(t, "IncrementsTheVersionOfACorrectedAccount", func(t *testing.T, f *fixture) {
		f.record(t, "help", 5)
		version := func() int64 {
			v, err := store.Row[int64](f.db.Reads(t.Context()), "SELECT version FROM usage_accounts WHERE agent_id = 'help'")
			require.NoError(t, err)
			return v
		}
		for _, wrong := range []string{"used = 1", "reserved = 7", "extra = 9, extra_until = 9000000000000000"} {
			before := version()
			f.exec(t, "UPDATE usage_accounts SET "+wrong+" WHERE agent_id = 'help'")
			_, err := f.Repair(t.Context(), operator())
			require.NoError(t, err)
			f.sound(t)
			require.Equal(t, before+1, version(), wrong)
		}
	})

	onEachDatabase(t, "SettlesAReservationAsItsFactSays", func(t *testing.T, f *fixture) {
		for _, change := range []string{"settled = 1", "state = 0, due = expires_at", "state = 2, settled = 0, digest = NULL"} {
			held := f.hold(t, "help", 500)
			_, err := f.settle("help", held.ID, 420)
			require.NoError(t, err)
			f.exec(t, "UPDATE usage_reservations SET "+change+" WHERE id = ?", held.ID)
			_, err = f.Repair(t.Context(), operator())
			require.NoError(t, err)
			f.sound(t)
			r, err := f.Reservation(t.Context(), "help", held.ID)
			require.NoError(t, err)
			require.Equal(t, models.ReservationSettled, r.State)
			require.EqualValues(t, 420, *r.SettledTokens)
			again, err := f.settle("help", held.ID, 420)
			require.NoError(t, err)
			require.True(t, again.Replayed)
		}
		require.EqualValues(t, 3*420, f.usage(t, "help").UsedToday)
		require.Zero(t, f.usage(t, "help").Reserved)
	})

	onEachDatabase(t, "RecordsTheMissingChargesOfToolCallsOnTheirDays", func(t *testing.T, f *fixture) {
		f.scope(t, "orch", models.ScopeSubtree)
		f.record(t, "help", 5)
		var calls []models.ToolCall
		add := func(at time.Time, tokens int64) {
			calls = append(calls, models.ToolCall{ID: fmt.Sprint(len(calls)), At: at, Source: "mcp", AgentID: "help", Outcome: "success", Tokens: tokens})
		}
		yesterday := f.db.Now().Add(-24 * time.Hour)
		add(yesterday, 30)
		add(yesterday.Add(time.Hour), 40)
		add(f.db.Now().Add(-time.Hour), 50)
		add(f.db.Now().Add(-time.Minute), 1000) // it may not be charged yet
		f.write(t, func(tx *store.Tx) error { return tx.Tools().AddCalls(calls) })
		_, err := f.report("help", fact(20, func(d *usage.FactDraft) { d.Kind = "tool_calls" }))
		require.NoError(t, err)
		f.repair(t, ledgercheck.Difference{AgentID: "help", What: "tool_calls", Where: "2026-01-10", Stored: 20, Computed: 50},
			ledgercheck.Difference{AgentID: "help", What: "tool_calls", Where: "2026-01-09", Computed: 70},
			ledgercheck.Difference{AgentID: "orch", What: "subtree_used", Stored: 25, Computed: 55})
		require.EqualValues(t, 55, f.usage(t, "help").UsedToday)
		h, err := f.History(t.Context(), "help", usage.HistoryQuery{Window: usage.WindowDay, From: startOf(20462), To: startOf(20463)})
		require.NoError(t, err)
		require.EqualValues(t, 70, h[0].Tokens)
		f.write(t, func(tx *store.Tx) error {
			_, err := tx.Tools().PurgeCalls(startOf(20463), 10)
			return err
		})
		f.sound(t)
	})

	t.Run("NamesWhatItCannotCorrect", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			f := setup(t, db)
			held := f.hold(t, "help", 500)
			_, err := f.settle("help", held.ID, 420)
			require.NoError(t, err)
			f.exec(t, "DELETE FROM usage_reservations")
			f.account(t, "help", func(a *store.Account) { a.Used = 1 })
			f.exec(t, "UPDATE usage_accounts SET warned_day = day WHERE agent_id = 'help'")
			for corrected := 1; corrected >= 0; corrected-- {
				out, err := f.Repair(t.Context(), operator())
				require.NoError(t, err)
				require.Equal(t, corrected, out.Corrected)
				require.EqualValues(t, 2, out.Total)
				require.Equal(t, "reservation", out.Differences[0].What)
				require.Contains(t, out.Differences[0].NotRepairable, "missing reservation")
				require.Equal(t, "agent.budget_warning", out.Differences[1].Where)
				require.Contains(t, out.Differences[1].NotRepairable, "not written again")
			}
			require.EqualValues(t, 420, f.usage(t, "help").UsedToday)
		})
	})

	onEachDatabase(t, "CorrectsManyWindowsWithSeveralEntries", func(t *testing.T, f *fixture) {
		f.write(t, func(tx *store.Tx) error {
			facts := []models.Fact{}
			for i := range int64(250) {
				facts = append(facts, models.Fact{AgentID: "help", At: time.Unix(i*3600, 0), Path: "nova/orch/spec/help", Tokens: 1})
			}
			return tx.Ledger().AddToWindows(facts)
		})
		out, err := f.Repair(t.Context(), operator())
		require.NoError(t, err)
		require.Equal(t, 250, out.Corrected)
		require.Len(t, out.Corrections, 100)
		require.Zero(t, out.Total)
		require.Len(t, f.corrections(t, "help"), 250)
	})

	// The account shows no use, so without locks a repair and the grants could exceed the budget.
	onEachDatabase(t, "LosesNoFactAndNoHoldOfConcurrentCallers", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.record(t, "help", 100)
		const callers, each = 8, 12
		var group sync.WaitGroup
		for n := range callers {
			group.Go(func() {
				id := []string{"help", "aid"}[n%2]
				for range each {
					if _, err := f.report(id, fact(7)); err != nil {
						t.Errorf("a fact is refused: %v", err)
					}
					held, err := f.reserve(id, 11)
					if err == nil {
						_, err = f.settle(id, held.ID, 11)
					}
					if err != nil {
						t.Errorf("a reservation fails: %v", err)
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { group.Wait(); close(done) }()
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			for _, falsify := range []string{
				"UPDATE usage_accounts SET used = used + 3, reserved = reserved + 2, subtree_used = subtree_used + 1",
				"UPDATE usage_windows SET tokens = tokens + 5",
			} {
				if err := f.db.Write(context.Background(), func(tx *store.Tx) error { _, err := tx.Exec(falsify); return err }); err != nil {
					t.Errorf("falsify: %v", err)
				}
				if _, err := f.Repair(context.Background(), operator()); err != nil {
					t.Errorf("a repair fails: %v", err)
				}
			}
		}
		_, err := f.Repair(t.Context(), operator())
		require.NoError(t, err)
		require.EqualValues(t, 100+callers/2*each*18, f.usage(t, "help").UsedToday)
		require.EqualValues(t, callers/2*each*18, f.usage(t, "aid").UsedToday)
		require.Zero(t, f.usage(t, "help").Reserved)
		require.EqualValues(t, 100+callers*each*18, f.usage(t, "spec").SubtreeUsedToday)
	})

	onEachDatabase(t, "ChangesNothingWhenItEnds", func(t *testing.T, f *fixture) {
		f.record(t, "help", 100)
		f.account(t, "help", func(a *store.Account) { a.Used = 7 })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := f.Repair(ctx, operator())
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, f.corrections(t, "help"))
		f.repair(t, ledgercheck.Difference{AgentID: "help", What: "used", Stored: 7, Computed: 100})
	})
}
