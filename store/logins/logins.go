// Package logins has the statements on logins of browsers, and on the single-use codes that start them.
package logins

import (
	"time"

	"comet/models"
	"comet/store"
	"comet/store/filter"
)

const (
	// Idle is how long a login is valid after its last use.
	Idle = 12 * time.Hour
	// most is how many logins, and how many codes, a token may have. The oldest end first.
	most = 100

	viewColumns = "id, token_id, token_name, user_agent, created_at, seen_at, expires_at"
	// live is the condition on logins that are valid if the agent of their token is active. Its arguments are those of liveAt.
	live = `expires_at > ? AND seen_at > ? AND (issued IS NOT NULL OR EXISTS
		(SELECT 1 FROM tokens t WHERE t.hash = token_hash AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > ?)))`
)

func liveAt(now time.Time) []any { return []any{now, now.Add(-Idle), now} }

// Credentials are those of the token of a login or of a code.
type Credentials struct {
	// TokenHash is the SHA-256 of the token's secret. A rotation of the token changes it.
	TokenHash [32]byte
	// Issued is the JWT, which is not stored elsewhere; nil for a stored token.
	Issued *JWT `gorm:"serializer:json"`
}

// JWT has the data of a JWT that comet stores.
type JWT struct {
	Token models.Token `json:"token"`
	// Settings identifies the settings from which the rights of the JWT were derived.
	Settings string `json:"settings"`
}

// View is a login of a browser, which acts with the authority of a token until it ends.
type View struct {
	ID        string    `json:"id" example:"01890a5d-ac96-774b-bcce-b302099a8057"`       // The login's id.
	TokenID   string    `json:"token_id" example:"01890a5d-ac96-774b-bcce-b302099a8056"` // The token with whose authority the browser acts.
	TokenName string    `json:"token_name" example:"ci-importer"`                        // The name of that token.
	UserAgent string    `json:"user_agent" example:"Mozilla/5.0 (X11; Linux x86_64)"`    // What the browser said about itself, at most 200 characters.
	CreatedAt time.Time `json:"created_at" example:"2026-01-10T15:30:00Z"`               // When the browser logged in.
	SeenAt    time.Time `json:"seen_at" example:"2026-01-10T18:30:00Z"`                  // When the login was last used, to the minute. It ends 12 hours later.
	ExpiresAt time.Time `json:"expires_at" example:"2026-01-17T15:30:00Z"`               // When it ends at the latest.
} // @name LoginView

// Login is a login with the SHA-256 of its secret.
type Login struct {
	View

	IDHash [32]byte
	Credentials
}

// LoginCode starts one login.
type LoginCode struct {
	Hash    [32]byte
	TokenID string
	Credentials

	ExpiresAt time.Time
}

// Expired reports whether a login has expired, or was not used for too long.
func (l Login) Expired(now time.Time) bool {
	return !now.Before(l.ExpiresAt) || !now.Before(l.SeenAt.Add(Idle))
}

// Insert stores a login, and deletes the oldest ones of its token if there are too many. Transactions that
// insert logins of the same stored token run one after the other.
func Insert(tx *store.Tx, l Login) error {
	return insert(tx, "logins", "id", l.TokenID, l)
}

// InsertCode stores a code, and deletes the oldest ones of its token if there are too many.
func InsertCode(tx *store.Tx, c LoginCode) error {
	return insert(tx, "login_codes", "expires_at", c.TokenID, c)
}

func insert[T any](tx *store.Tx, table, order, tokenID string, row T) error {
	if _, err := store.Rows[string](tx, "SELECT id FROM tokens WHERE id = ?"+store.ForUpdate(tx), tokenID); err != nil {
		return err
	}
	if err := store.Insert(tx, "", row); err != nil {
		return err
	}
	return tx.Run("DELETE FROM "+table+" WHERE token_id = ? AND "+order+" < (SELECT "+order+" FROM "+table+" WHERE token_id = ? ORDER BY "+order+" DESC LIMIT 1 OFFSET ?)",
		tokenID, tokenID, most-1)
}

// TakeCode deletes and returns a code that has not expired, given by its SHA-256, or returns errs.NotFound.
func TakeCode(tx *store.Tx, hash [32]byte) (LoginCode, error) {
	return store.Row[LoginCode](tx, "DELETE FROM login_codes WHERE hash = ? AND expires_at > ? RETURNING hash, token_id, token_hash, issued, expires_at", hash, tx.Now())
}

// ByHash returns the login whose secret has that SHA-256, also an expired one, or errs.NotFound.
func ByHash(from store.Source, hash [32]byte) (Login, error) {
	return store.Row[Login](from, "SELECT "+viewColumns+", id_hash, token_hash, issued FROM logins WHERE id_hash = ?", hash)
}

// List returns up to limit valid logins of a token, of all tokens for "", in the order of creation, that follow the id after.
func List(from store.Source, tokenID, after string, now time.Time, limit int) ([]View, error) {
	var where filter.Clause
	where.Optional("token_id = ?", tokenID)
	where.And("id > ?", after)
	where.And(live, liveAt(now)...)
	return store.Rows[View](from, "SELECT "+viewColumns+" FROM logins"+where.SQL()+" ORDER BY id LIMIT ?", append(where.Args, limit)...)
}

// Touch stores that logins were used now.
func Touch(tx *store.Tx, ids []string) error {
	return tx.Run("UPDATE logins SET seen_at = ? WHERE id "+store.In(tx), tx.Now(), store.Keys(ids))
}

// Delete deletes a valid login of a token, of any token for "". ok is false if there is none with that id.
func Delete(tx *store.Tx, tokenID, id string) (ok bool, err error) {
	var where filter.Clause
	where.Optional("token_id = ?", tokenID)
	where.And("id = ?", id)
	where.And(live, liveAt(tx.Now())...)
	n, err := tx.Exec("DELETE FROM logins"+where.SQL(), where.Args...)
	return n > 0, err
}

// DeleteByHash deletes the login whose secret has that SHA-256, if there is one.
func DeleteByHash(tx *store.Tx, hash [32]byte) error {
	return tx.Run("DELETE FROM logins WHERE id_hash = ?", hash)
}

// Purge deletes up to limit logins that are not valid.
func Purge(tx *store.Tx, limit int) (int64, error) {
	return tx.Exec("DELETE FROM logins WHERE id IN (SELECT id FROM logins WHERE NOT ("+live+") LIMIT ?)", append(liveAt(tx.Now()), limit)...)
}

// PurgeCodes deletes up to limit codes that have expired.
func PurgeCodes(tx *store.Tx, limit int) (int64, error) {
	return tx.Exec("DELETE FROM login_codes WHERE hash IN (SELECT hash FROM login_codes WHERE expires_at <= ? LIMIT ?)", tx.Now(), limit)
}
