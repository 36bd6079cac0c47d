// Package usage is the ledger: what agents have spent, what they may still spend,
// and who must hear of it (CHE·NU §5). Every use of tokens is a fact that never
// changes; every sum in the ledger is one of facts and can be computed again.
//
// Permission to spend is asked for with a reservation, which holds tokens until it
// is settled with what was really used, is released, or expires. No interleaving of
// callers, of this process or others on the same database, is granted more than the
// budget covers.
package usage

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// errTODO marks what is being written.
var errTODO = errs.New(errs.Internal, "not written yet")

// Record records facts, all of them or none (CHE·NU §5). See …
func (l *Ledger) Record(ctx context.Context, by models.Principal, agentID string, drafts []models.FactDraft, once *models.Once) (models.Recorded, error) {
	return models.Recorded{}, errTODO
}

func (l *Ledger) Reserve(ctx context.Context, by models.Principal, agentID string, d models.ReservationDraft, once *models.Once) (models.Reservation, error) {
	return models.Reservation{}, errTODO
}

func (l *Ledger) Settle(ctx context.Context, by models.Principal, agentID, id string, d models.Settlement, once *models.Once) (models.Settled, error) {
	return models.Settled{}, errTODO
}

func (l *Ledger) Release(ctx context.Context, by models.Principal, agentID, id string) error {
	return errTODO
}

func (l *Ledger) Reservation(ctx context.Context, agentID, id string) (models.Reservation, error) {
	return models.Reservation{}, errTODO
}

// Reservations returns up to limit reservations of an agent, newest first, behind
// the one with the id before ("" starts at the newest); state "" is all.
func (l *Ledger) Reservations(ctx context.Context, agentID string, state models.ReservationState, before string, limit int) ([]models.Reservation, error) {
	return nil, errTODO
}

func (l *Ledger) Usage(ctx context.Context, agentID string) (models.Usage, error) {
	return models.Usage{}, errTODO
}

func (l *Ledger) History(ctx context.Context, agentID string, q models.HistoryQuery) ([]models.HistoryBucket, error) {
	return nil, errTODO
}

func (l *Ledger) AddBudget(ctx context.Context, by models.Principal, agentID string, d models.BudgetAdditionDraft, once *models.Once) (models.BudgetAddition, error) {
	return models.BudgetAddition{}, errTODO
}

func (l *Ledger) RemoveBudget(ctx context.Context, by models.Principal, agentID, id string) error {
	return errTODO
}

// Budgets returns the additional budgets of an agent, newest first; expired ones too with all.
func (l *Ledger) Budgets(ctx context.Context, agentID string, all bool) ([]models.BudgetAddition, error) {
	return nil, errTODO
}

func (l *Ledger) Reset(ctx context.Context, by models.Principal, agentID string, d models.UsageReset, once *models.Once) (models.Usage, error) {
	return models.Usage{}, errTODO
}

func (l *Ledger) Verify(ctx context.Context) (models.Verification, error) {
	return models.Verification{}, errTODO
}

// TreeUsage is what agents used today: by themselves (resets not taken off) and with those that stood below
// them when they spent, for the hierarchy.
type TreeUsage struct {
	Used        map[string]int64
	SubtreeUsed map[string]int64
}

// Tree returns today's use of every agent that used something, or above one that did.
func (l *Ledger) Tree(ctx context.Context) (TreeUsage, error) { return TreeUsage{}, errTODO }

// Options configures New; nil is the zero value.
type Options struct{}

// Ledger keeps the accounts.
type Ledger struct {
	store *store.Store
	now   func() time.Time
}

// New returns a ledger over the store.
func New(s *store.Store, _ *Options) *Ledger { return &Ledger{store: s} }
