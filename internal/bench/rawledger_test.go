package bench

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

// The statements of the store, for one row each.
const (
	chainSQL = `WITH RECURSIVE chain (cid, pid) AS (
			SELECT id, parent_id FROM agents WHERE id IN (?)
			UNION
			SELECT a.id, a.parent_id FROM agents a JOIN chain ON a.id = chain.pid)
		SELECT id, level, parent_id, token_budget, budget_scope, is_active, version FROM chain JOIN agents ON id = cid`

	accountColumns = `agent_id, level, day, used, forgiven, reserved, subtree, subtree_used, subtree_forgiven, subtree_reserved,
		extra, extra_until, warned_day, exceeded_day`
	accountSQL     = "SELECT " + accountColumns + " FROM usage_accounts WHERE agent_id IN (?)"
	saveAccountSQL = "INSERT INTO usage_accounts (" + accountColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (agent_id) DO UPDATE SET day = excluded.day, used = excluded.used, forgiven = excluded.forgiven, reserved = excluded.reserved,
		subtree = excluded.subtree, subtree_used = excluded.subtree_used, subtree_forgiven = excluded.subtree_forgiven,
		subtree_reserved = excluded.subtree_reserved, extra = excluded.extra, extra_until = excluded.extra_until,
		warned_day = excluded.warned_day, exceeded_day = excluded.exceeded_day`

	factColumns = "agent_id, at, id, path, tokens, model, kind, task_id, request_id, reservation_id, digest"
	namedSQL    = "SELECT id FROM usage_facts WHERE request_id <> '' AND (agent_id, request_id) IN (VALUES (?, ?))"
	factSQL     = "INSERT INTO usage_facts (" + factColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	windowSQL   = `INSERT INTO usage_windows (agent_id, hour, path, tokens) VALUES (?, ?, ?, ?)
		ON CONFLICT (agent_id, hour, path) DO UPDATE SET tokens = usage_windows.tokens + excluded.tokens`

	reservationColumns = "agent_id, id, path, tokens, state, due, expires_at, created_at, settled, digest"
	reservationSQL     = "SELECT " + reservationColumns + " FROM usage_reservations WHERE (agent_id, id) IN (VALUES (?, ?))"
	saveReservationSQL = "INSERT INTO usage_reservations (" + reservationColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (agent_id, id) DO UPDATE SET state = excluded.state, due = excluded.due, settled = excluded.settled, digest = excluded.digest`
)

// rawLedger writes the ledger's rows without group commit: one transaction per request, with the
// same durability. It has one connection on SQLite, and as many as the store's writers on
// PostgreSQL.
type rawLedger struct {
	clock func() time.Time
	idle  chan *rawStatements
}

// rawStatements are the prepared statements of one connection.
type rawStatements struct {
	begin, commit, rollback      *sql.Stmt
	chain, account, saveAccount  *sql.Stmt
	named, fact, window          *sql.Stmt
	reservation, saveReservation *sql.Stmt
}

func openRawLedger(b *testing.B, g testDatabase) *rawLedger {
	b.Helper()
	connections, begin, locked := 1, "BEGIN IMMEDIATE", ""
	if g.database == postgres {
		connections, begin, locked = postgresWriters, "BEGIN", " FOR UPDATE"
	}
	l, db := &rawLedger{clock: g.clock, idle: make(chan *rawStatements, connections)}, g.raw(b, connections)
	for range connections {
		conn, err := db.Conn(detached())
		require.NoError(b, err)
		b.Cleanup(func() { _ = conn.Close() })
		prepare := func(query string) *sql.Stmt {
			st, err := conn.PrepareContext(detached(), g.bind(query))
			require.NoError(b, err, query)
			return st
		}
		l.idle <- &rawStatements{
			begin: prepare(begin), commit: prepare("COMMIT"), rollback: prepare("ROLLBACK"),
			chain: prepare(chainSQL), account: prepare(accountSQL + locked), saveAccount: prepare(saveAccountSQL),
			named: prepare(namedSQL), fact: prepare(factSQL), window: prepare(windowSQL),
			reservation: prepare(reservationSQL), saveReservation: prepare(saveReservationSQL),
		}
	}
	return l
}

// transact runs fn in a transaction.
func (l *rawLedger) transact(ctx context.Context, fn func(ctx context.Context, b *rawStatements) error) error {
	ctx = context.WithoutCancel(ctx)
	b := <-l.idle
	defer func() { l.idle <- b }()
	if _, err := b.begin.ExecContext(ctx); err != nil {
		return err
	}
	if err := fn(ctx, b); err != nil {
		_, _ = b.rollback.ExecContext(ctx)
		return err
	}
	_, err := b.commit.ExecContext(ctx)
	return err
}

func (l *rawLedger) now() time.Time { return l.clock().UTC().Truncate(time.Microsecond) }

// open reads the agent with its ancestors and locks its account.
func (b *rawStatements) open(ctx context.Context, id string) (a store.Account, path string, budget int64, err error) {
	rows, err := b.chain.QueryContext(ctx, id)
	if err != nil {
		return a, "", 0, err
	}
	defer func() { _ = rows.Close() }()
	parents := map[string]string{}
	for rows.Next() {
		var link, scope string
		var parent sql.NullString
		var tokens sql.NullInt64
		var level, version int64
		var active bool
		if err := rows.Scan(&link, &level, &parent, &tokens, &scope, &active, &version); err != nil {
			return a, "", 0, err
		}
		if parents[link] = parent.String; link == id {
			budget = tokens.Int64
		}
	}
	if err := rows.Err(); err != nil {
		return a, "", 0, err
	}
	path = id
	for link := parents[id]; link != ""; link = parents[link] {
		path = link + "/" + path
	}
	var until int64
	err = b.account.QueryRowContext(ctx, id).Scan(&a.AgentID, &a.Level, &a.Day, &a.Used, &a.Forgiven, &a.Reserved,
		&a.Subtree, &a.SubtreeUsed, &a.SubtreeForgiven, &a.SubtreeReserved, &a.Extra, &until, &a.WarnedDay, &a.ExceededDay)
	a.ExtraUntil = time.UnixMicro(until)
	return a, path, budget, err
}

func (b *rawStatements) save(ctx context.Context, a store.Account) error {
	_, err := b.saveAccount.ExecContext(ctx, a.AgentID, int(a.Level), a.Day, a.Used, a.Forgiven, a.Reserved,
		a.Subtree, a.SubtreeUsed, a.SubtreeForgiven, a.SubtreeReserved, a.Extra, a.ExtraUntil.UnixMicro(), a.WarnedDay, a.ExceededDay)
	return err
}

// charge writes a fact and adds it to its window.
func (b *rawStatements) charge(ctx context.Context, f models.Fact) error {
	at := f.At.UnixMicro()
	if _, err := b.fact.ExecContext(ctx, f.AgentID, at, f.ID, f.Path, f.Tokens, f.Model, f.Kind, f.TaskID,
		f.RequestID, f.ReservationID, f.Digest[:]); err != nil {
		return err
	}
	_, err := b.window.ExecContext(ctx, f.AgentID, f.At.Unix()/3600, f.Path, f.Tokens)
	return err
}

func balance(a store.Account, budget int64) usage.Balance {
	used := a.Used - a.Forgiven
	return usage.Balance{
		Budget: &budget, UsedToday: used, Reserved: a.Reserved, Remaining: new(max(0, budget-used-a.Reserved)),
		ResetAt: time.Unix((a.Day+1)*86400, 0).UTC(),
	}
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

func digest(said any) [32]byte { return sha256.Sum256([]byte(strings.TrimSpace(mustJSON(said)))) }
