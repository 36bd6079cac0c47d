package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"comet/internal/errs"
	"comet/models"
)

// tokenRow is a row of tokens.
type tokenRow struct {
	ID         string `gorm:"primaryKey"`
	Name       string
	Hash       []byte
	Configured []byte
	Scopes     string
	AgentID    *string
	CreatedBy  string
	CreatedAt  int64 `gorm:"autoCreateTime:false"`
	RotatedAt  *int64
	ExpiresAt  *int64
	RevokedAt  *int64
}

// TableName implements gorm's schema.Tabler.
func (tokenRow) TableName() string { return "tokens" }

func newTokenRow(t models.Token) (tokenRow, error) {
	scopes, err := json.Marshal(t.Scopes)
	return tokenRow{
		ID: t.ID, Name: t.Name, Hash: t.Hash[:], Configured: t.Configured, Scopes: string(scopes), AgentID: t.AgentID, CreatedBy: t.CreatedBy,
		CreatedAt: micros(t.CreatedAt), RotatedAt: microsPtr(t.RotatedAt), ExpiresAt: microsPtr(t.ExpiresAt), RevokedAt: microsPtr(t.RevokedAt),
	}, err
}

func (r tokenRow) token() (models.Token, error) {
	t := models.Token{
		ID: r.ID, Name: r.Name, Configured: r.Configured, AgentID: r.AgentID, CreatedBy: r.CreatedBy, CreatedAt: fromMicros(r.CreatedAt),
		RotatedAt: timePtr(r.RotatedAt), ExpiresAt: timePtr(r.ExpiresAt), RevokedAt: timePtr(r.RevokedAt),
	}
	copy(t.Hash[:], r.Hash)
	return t, json.Unmarshal([]byte(r.Scopes), &t.Scopes)
}

// TokenByHash returns the token whose secret has that SHA-256 and whether the
// agent it is bound to is active (true for none), or errs.NotFound. Expired and
// revoked tokens are returned like any other.
func (s *Store) TokenByHash(ctx context.Context, hash [32]byte) (t models.Token, agentActive bool, err error) {
	var row struct {
		Row         tokenRow `gorm:"embedded"`
		AgentActive *bool
	}
	err = s.cold(ctx).Table("tokens").
		Select("tokens.*, agents.is_active AS agent_active").
		Joins("LEFT JOIN agents ON agents.id = tokens.agent_id").
		Where("tokens.hash = ?", hash[:]).Take(&row).Error
	if err != nil {
		return t, false, translate(err)
	}
	t, err = row.Row.token()
	return t, row.AgentActive == nil || *row.AgentActive, err
}

// hashesAtOnce is how many secrets one statement of AcceptedTokens asks for.
const hashesAtOnce = 500

// AcceptedTokens returns which of the secrets, given by their SHA-256, are those of tokens that
// may be used now: neither expired nor revoked, nor bound to an agent that is not active.
func (s *Store) AcceptedTokens(ctx context.Context, hashes [][32]byte) (accepted map[[32]byte]bool, err error) {
	accepted = map[[32]byte]bool{}
	for some := range slices.Chunk(hashes, hashesAtOnce) {
		keys := make([][]byte, 0, len(some))
		for _, hash := range some {
			keys = append(keys, hash[:])
		}
		var found [][]byte
		err := s.cold(ctx).Table("tokens").Joins("LEFT JOIN agents ON agents.id = tokens.agent_id").
			Where("tokens.hash IN ? AND tokens.revoked_at IS NULL AND (tokens.expires_at IS NULL OR tokens.expires_at > ?) AND "+
				"(tokens.agent_id IS NULL OR "+s.dialect.isTrue("agents.is_active")+")", keys, micros(s.Now())).
			Pluck("tokens.hash", &found).Error
		if err != nil {
			return nil, translate(err)
		}
		for _, hash := range found {
			accepted[[32]byte(hash)] = true
		}
	}
	return accepted, nil
}

// Token returns the token with that id, or errs.NotFound.
func (s *Store) Token(ctx context.Context, id string) (models.Token, error) {
	var row tokenRow
	if err := s.cold(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
		return models.Token{}, tokenMissing(err, id)
	}
	return row.token()
}

// Tokens returns up to limit tokens in the order of their ids, which is that of
// their creation, after the id after ("" starts at the first).
func (s *Store) Tokens(ctx context.Context, after string, limit int) ([]models.Token, error) {
	var rows []tokenRow
	if err := s.cold(ctx).Where("id > ?", after).Order("id").Limit(limit).Find(&rows).Error; err != nil {
		return nil, translate(err)
	}
	out := make([]models.Token, 0, len(rows))
	for _, r := range rows {
		t, err := r.token()
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// Token returns the token with that id and locks it, or errs.NotFound.
func (tx *Tx) Token(id string) (models.Token, error) {
	var row tokenRow
	if err := tx.lockedTokens().Where("id = ?", id).Take(&row).Error; err != nil {
		return models.Token{}, tokenMissing(err, id)
	}
	return row.token()
}

// LockTokens makes transactions that decide by who holds the admin scope run one
// after the other, where there may be no row to lock yet. It must be the
// transaction's first statement.
func (tx *Tx) LockTokens() error {
	if tx.store.dialect.lockTokens == "" {
		return nil
	}
	_, err := tx.exec(tx.store.dialect.lockTokens)
	return err
}

// AdminTokens returns every token with the admin scope that may be used now, and
// locks them, so that two revocations cannot each spare the other's token. One
// bound to an inactive agent may not be used.
func (tx *Tx) AdminTokens() ([]models.Token, error) {
	var rows []tokenRow
	err := tx.lockedTokens().Where("revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?) AND scopes LIKE ? AND "+
		"(agent_id IS NULL OR agent_id IN (SELECT id FROM agents WHERE "+tx.store.dialect.isTrue("is_active")+"))",
		micros(tx.now), `%"`+string(models.ScopeAdmin)+`"%`).Order("id").Find(&rows).Error
	if err != nil {
		return nil, translate(err)
	}
	out := make([]models.Token, 0, len(rows))
	for _, r := range rows {
		t, err := r.token()
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// InsertToken stores a new token. It returns errs.Conflict when its id or its
// secret is taken, by a transaction that ran beside this one too, and when its
// agent is unknown.
func (tx *Tx) InsertToken(t models.Token) error {
	row, err := newTokenRow(t)
	if err != nil {
		return err
	}
	return translate(tx.db().Create(&row).Error)
}

// SaveToken stores the changed form of a token that Token returned. It returns
// errs.Conflict when another token has the same secret.
func (tx *Tx) SaveToken(t models.Token) error {
	row, err := newTokenRow(t)
	if err != nil {
		return err
	}
	return translate(tx.db().Save(&row).Error)
}

// lockedTokens reads tokens with a row lock where the database has them.
func (tx *Tx) lockedTokens() *gorm.DB {
	if tx.store.dialect.forUpdate == "" {
		return tx.db()
	}
	return tx.db().Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate})
}

func microsPtr(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	return new(micros(*t))
}

func timePtr(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	return new(fromMicros(*us))
}

func tokenMissing(err error, id string) error {
	if err = translate(err); errs.Is(err, errs.NotFound) {
		return errs.New(errs.NotFound, "there is no token %q", id)
	}
	return err
}
