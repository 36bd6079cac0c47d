package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/models"
)

const additionColumns = "agent_id, id, tokens, reason, expires_at, created_at, created_by"

// InsertAddition stores an additional budget. The caller has locked the account.
func (tx *Tx) InsertAddition(a models.BudgetAddition) error {
	_, err := tx.exec("INSERT INTO budget_additions ("+additionColumns+") VALUES (?, ?, ?, ?, ?, ?, ?)",
		a.AgentID, a.ID, a.Tokens, a.Reason, micros(a.ExpiresAt), micros(a.CreatedAt), a.CreatedBy)
	return err
}

// Additions returns the additional budgets of an agent that count, newest first.
func (tx *Tx) Additions(agentID string) ([]models.BudgetAddition, error) {
	var list []models.BudgetAddition
	err := tx.query(additionsQuery(false), []any{agentID, micros(tx.now)}, func(rows *sql.Rows) error {
		a, err := scanAddition(rows, tx.now)
		list = append(list, a)
		return err
	})
	return list, err
}

// Additions returns the additional budgets of an agent, newest first, at most 1,000:
// those that count at now, or all.
func (s *Store) Additions(ctx context.Context, agentID string, now time.Time, all bool) ([]models.BudgetAddition, error) {
	list, args := []models.BudgetAddition{}, []any{agentID}
	if !all {
		args = append(args, micros(now))
	}
	err := s.query(ctx, s.dialect.bind(additionsQuery(all)), args, func(rows *sql.Rows) error {
		a, err := scanAddition(rows, now)
		list = append(list, a)
		return err
	})
	return list, err
}

// AdditionsByAgent returns the sums of the additional budgets that count at now.
func (s *Store) AdditionsByAgent(ctx context.Context, now time.Time) (map[string]int64, error) {
	sums := map[string]int64{}
	err := s.query(ctx, s.dialect.bind("SELECT agent_id, sum(tokens) FROM budget_additions WHERE expires_at > ? GROUP BY agent_id"), []any{micros(now)},
		func(rows *sql.Rows) error {
			var id string
			var tokens int64
			err := rows.Scan(&id, &tokens)
			sums[id] = tokens
			return err
		})
	return sums, err
}

func additionsQuery(all bool) string {
	where := "WHERE agent_id = ?"
	if !all {
		where += " AND expires_at > ?"
	}
	return "SELECT " + additionColumns + " FROM budget_additions " + where + " ORDER BY id DESC LIMIT 1000"
}

func scanAddition(rows *sql.Rows, now time.Time) (models.BudgetAddition, error) {
	var a models.BudgetAddition
	var expires, created int64
	err := rows.Scan(&a.AgentID, &a.ID, &a.Tokens, &a.Reason, &expires, &created, &a.CreatedBy)
	a.ExpiresAt, a.CreatedAt = fromMicros(expires), fromMicros(created)
	a.Active = a.ExpiresAt.After(now)
	return a, err
}

// EndAddition ends an additional budget that still counts. It returns errs.NotFound
// for one that does not.
func (tx *Tx) EndAddition(agentID, id string) error {
	n, err := tx.exec("UPDATE budget_additions SET expires_at = ? WHERE agent_id = ? AND id = ? AND expires_at > ?",
		micros(tx.now), agentID, id, micros(tx.now))
	if err == nil && n == 0 {
		return errs.New(errs.NotFound, "%q has no additional budget %q that still counts", agentID, id)
	}
	return err
}

// InsertReset stores what a reset wrote off.
func (tx *Tx) InsertReset(agentID string, day, own, subtree int64) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	_, err = tx.exec("INSERT INTO usage_resets (agent_id, day, id, at, own, subtree) VALUES (?, ?, ?, ?, ?, ?)",
		agentID, day, id.String(), micros(tx.now), own, subtree)
	return err
}
