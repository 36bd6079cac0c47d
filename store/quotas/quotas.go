// Package quotas limits how many objects one token and its descendants may have created. The topmost token of a
// chain that does not administer the whole system has the most objects, so a check locks one row and counts once.
package quotas

import (
	"maps"
	"slices"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// owner selects the token whose quota applies. Only administrators create upstreams, so that quota applies to them too.
const owner = store.TokenChain + `SELECT id, name FROM chain JOIN tokens ON id = cid
	WHERE ? OR NOT (scopes LIKE '%"admin"%' AND coalesce(agent_id, '` + models.RootAgentID + `') = '` + models.RootAgentID + `') ORDER BY depth DESC LIMIT 1`

// Add checks objects of a kind, which is the name of their table, that a principal has created in the transaction.
// It records agents; other objects contain their token's id. It returns errs.LimitReached if the token of the principal
// or an ancestor of the token now has, with its descendants, more objects than store.Options.Quotas allows. Tokens
// that administer the whole system have a quota for upstreams only, principals without a stored token have none.
func Add(tx *store.Tx, by models.Principal, kind string, ids ...string) error {
	if by.Administers() && kind != "upstreams" || len(ids) == 0 {
		return nil
	}
	return check(tx, by.TokenID, kind, ids)
}

// Restore checks agents that were restored in the transaction against the quotas of the tokens that created
// them, as Add does. A principal that administers the whole system may exceed them.
func Restore(tx *store.Tx, by models.Principal, ids ...string) error {
	if by.Administers() {
		return nil
	}
	creators, err := store.Rows[string](tx, "SELECT DISTINCT token_id FROM token_objects WHERE id "+store.In(tx), store.Keys(ids))
	owners := map[string]string{} // a creator by the token whose quota applies
	for _, creator := range creators {
		found, err := store.Row[token](tx, owner, creator, false)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		owners[found.ID] = creator
	}
	for _, id := range slices.Sorted(maps.Keys(owners)) { // the order in which tokens are locked
		if err == nil && id != "" {
			err = check(tx, owners[id], "agents", nil)
		}
	}
	return err
}

type token struct{ ID, Name string }

func check(tx *store.Tx, tokenID, kind string, agents []string) error {
	token, err := store.Row[token](tx, owner+store.ForUpdate(tx), tokenID, kind == "upstreams") // concurrent requests wait
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	from, args := kind+" WHERE token_id "+store.TokenTree, []any{token.ID}
	switch {
	case err == nil && kind == "tokens":
		from, args = "tokens WHERE revoked_at IS NULL AND parent_id "+store.TokenTree+" AND (expires_at IS NULL OR expires_at > ?)", append(args, tx.Now())
	case err == nil && kind == "webhooks":
		from = "webhooks WHERE task_id IS NULL AND token_id " + store.TokenTree
	case err == nil && kind == "agents":
		from = "token_objects o JOIN agents a ON a.id = o.id WHERE a.is_active = TRUE AND o.token_id " + store.TokenTree
		_, err = tx.Exec("INSERT INTO token_objects (token_id, kind, id) SELECT ?, 'agents', id FROM agents WHERE id "+store.In(tx), tokenID, store.Keys(agents))
	}
	if err != nil {
		return err
	}
	n, err := store.Row[int](tx, "SELECT count(*) FROM "+from, args...)
	if limit := tx.Quota(kind); err == nil && n > limit {
		err = errs.New(errs.LimitReached, "the token %q (%s) and its descendants may have created at most %d %s; delete some, or ask an administrator to raise the setting quotas.%s", token.Name, token.ID, limit, kind, kind)
	}
	return err
}

// CheckShortLived returns errs.LimitReached if an agent has most valid tokens, or more, that were issued for at most life.
// The caller has locked all tokens.
func CheckShortLived(tx *store.Tx, agentID string, life time.Duration, most int) error {
	found, err := store.Row[struct {
		N     int
		First *time.Time
	}](tx, "SELECT count(*) AS n, min(expires_at) AS first FROM tokens WHERE agent_id = ? AND revoked_at IS NULL AND expires_at > ? AND expires_at - created_at <= ?",
		agentID, tx.Now(), life.Microseconds())
	if err == nil && found.N >= most {
		err = errs.New(errs.LimitReached, "the agent %q has %d valid tokens of at most %d minutes; use one of them until it expires, or wait until %s, when the first one expires",
			agentID, found.N, int(life.Minutes()), found.First.UTC().Format(time.RFC3339)).With("limit", most)
	}
	return err
}

// PurgeShortLived deletes up to limit tokens of agents that were issued for at most life and expired before a time, unless
// something refers to them, and returns how many.
func PurgeShortLived(tx *store.Tx, life time.Duration, before time.Time, limit int) (int64, error) {
	return tx.Exec(`DELETE FROM tokens WHERE id IN (SELECT id FROM tokens t WHERE agent_id IS NOT NULL AND expires_at < ? AND expires_at - created_at <= ?
		AND NOT EXISTS (SELECT 1 FROM tokens WHERE parent_id = t.id) AND NOT EXISTS (SELECT 1 FROM token_objects WHERE token_id = t.id)
		AND NOT EXISTS (SELECT 1 FROM webhooks WHERE token_id = t.id) AND NOT EXISTS (SELECT 1 FROM upstreams WHERE token_id = t.id)
		AND NOT EXISTS (SELECT 1 FROM workflows WHERE token_id = t.id) AND NOT EXISTS (SELECT 1 FROM schedules WHERE token_id = t.id) LIMIT ?)`,
		before, life.Microseconds(), limit)
}
