package store

import (
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"comet/models"
)

// withinChain is the condition that the agent of a token is still in the subtrees of the agents of all
// tokens that it descends from; an agent can be moved after a token was created for it.
const withinChain = `(tokens.parent_id IS NULL OR NOT EXISTS (WITH RECURSIVE
	chain (above, aid) AS (SELECT tokens.parent_id, tokens.agent_id
		UNION ALL SELECT t.parent_id, t.agent_id FROM tokens t JOIN chain ON t.id = chain.above),
	path (aid, above) AS (SELECT a.id, a.parent_id FROM agents a WHERE a.id = tokens.agent_id
		UNION ALL SELECT a.id, a.parent_id FROM agents a JOIN path ON a.id = path.above)
	SELECT 1 FROM chain WHERE chain.aid NOT IN (SELECT path.aid FROM path)))`

// ByHash returns the token whose secret has that SHA-256, also an expired or revoked one, and whether the
// agent it is bound to is active (true for none), or errs.NotFound, also unless withinChain applies.
func (r tokenReader) ByHash(hash [32]byte) (t models.Token, agentActive bool, err error) {
	var row struct {
		models.Token
		AgentActive *bool
	}
	err = r.db().Table("tokens").
		Select("tokens.*, agents.is_active AS agent_active").
		Joins("LEFT JOIN agents ON agents.id = tokens.agent_id").
		Where("tokens.hash = ? AND "+withinChain, hash[:]).Take(&row).Error
	return row.Token, row.AgentActive == nil || *row.AgentActive, err
}

// hashesAtOnce is how many secrets one statement of AcceptedTokens looks up.
const hashesAtOnce = 500

// Accepted returns which of the secrets, given by their SHA-256, are those of tokens that
// may be used now: neither expired nor revoked, nor bound to an agent that is not active.
func (r tokenReader) Accepted(hashes [][32]byte) (accepted map[[32]byte]bool, err error) {
	accepted = map[[32]byte]bool{}
	for some := range slices.Chunk(hashes, hashesAtOnce) {
		keys := convert(some, func(hash [32]byte) []byte { return hash[:] })
		var found [][]byte
		err := r.db().Table("tokens").Joins("LEFT JOIN agents ON agents.id = tokens.agent_id").
			Where("tokens.hash IN ? AND tokens.revoked_at IS NULL AND (tokens.expires_at IS NULL OR tokens.expires_at > ?) AND "+
				"(tokens.agent_id IS NULL OR agents.is_active = TRUE) AND "+withinChain, keys, r.now).
			Pluck("tokens.hash", &found).Error
		if err != nil {
			return nil, err
		}
		for _, hash := range found {
			accepted[[32]byte(hash)] = true
		}
	}
	return accepted, nil
}

// Get returns the token with that id, or errs.NotFound.
func (r tokenReader) Get(id string) (models.Token, error) {
	return findToken(r.db(), id)
}

// List returns up to limit tokens in the order of their ids, which is that of their creation, after
// the id after ("" starts at the first): the token root and its descendants, all for "".
func (r tokenReader) List(root, after string, limit int) ([]models.Token, error) {
	tokens, db := []models.Token{}, r.db().Where("id > ?", after).Order("id").Limit(limit)
	if root != "" {
		db = db.Where("id "+TokenTree, root)
	}
	return tokens, db.Find(&tokens).Error
}

// TokenTree is the condition after a column: a token, the argument, or one of its descendants.
const TokenTree = `IN (WITH RECURSIVE tree (tid) AS (SELECT id FROM tokens WHERE id = ?
	UNION ALL SELECT t.id FROM tokens t JOIN tree ON t.parent_id = tree.tid) SELECT tid FROM tree)`

// Chain returns the ids of a token and of those that it descends from, which come after it.
func (r tokenReader) Chain(id string) ([]string, error) {
	return list[string](r.reader, TokenChain+"SELECT cid FROM chain ORDER BY depth", id)
}

// Agents returns the agents of a principal's token and of its ancestors, none for a principal without an agent.
func (r tokenReader) Agents(by models.Principal) ([]string, error) {
	if by.AgentID == nil {
		return []string{}, nil
	}
	return list[string](r.reader, TokenChain+"SELECT agent_id FROM chain JOIN tokens ON id = cid WHERE agent_id IS NOT NULL UNION SELECT ? ORDER BY 1", by.TokenID, *by.AgentID)
}

// TokenChain selects the token of the argument and its ancestors.
const TokenChain = `WITH RECURSIVE chain (cid, above, depth) AS (SELECT id, parent_id, 0 FROM tokens WHERE id = ?
	UNION ALL SELECT t.id, t.parent_id, depth + 1 FROM tokens t JOIN chain ON t.id = chain.above) `

// LockTree returns a token and its descendants, without the revoked ones, and locks them.
func (tx Tokens) LockTree(id string) ([]models.Token, error) {
	tokens := []models.Token{}
	return tokens, forUpdate(tx.db()).Where("revoked_at IS NULL AND id "+TokenTree, id).Order("id").Find(&tokens).Error
}

// Touch stores that tokens were used now.
func (tx Tokens) Touch(ids []string) error {
	return tx.run("UPDATE tokens SET last_used_at = ? WHERE id "+tx.engine.in, tx.now, Keys(ids))
}

// Lock returns the token with that id and locks it, or errs.NotFound.
func (tx Tokens) Lock(id string) (models.Token, error) {
	return findToken(forUpdate(tx.db()), id)
}

func findToken(db *gorm.DB, id string) (t models.Token, err error) {
	err = db.Take(&t, "id = ?", id).Error
	return t, orMissing(err, "there is no token %q", id)
}

// LockAll serializes the transactions that decide by the holders of the admin scope, where there may be
// no row to lock yet. It must come before the locks of tokens.
func (tx Tokens) LockAll() error { return tx.lock(lockTokens) }

// LockAdmins returns every token with the admin scope for the whole system that may be used now, and
// locks them, so that two revocations cannot each spare the other's token.
func (tx Tokens) LockAdmins() ([]models.Token, error) {
	admins := []models.Token{}
	return admins, forUpdate(tx.db()).
		Where("revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?) AND scopes LIKE ? AND "+
			"(agent_id IS NULL OR agent_id IN (SELECT id FROM agents WHERE is_active = TRUE AND level = 0))",
			tx.now, `%"`+string(models.ScopeAdmin)+`"%`).Order("id").Find(&admins).Error
}

// Insert stores a new token. It returns errs.Conflict when its id or its secret is taken, by a
// transaction that ran beside this one too, and when its agent is unknown.
func (tx Tokens) Insert(t models.Token) error { return tx.db().Create(&t).Error }

// Save stores the changed form of a token that Lock returned. It returns
// errs.Conflict when another token has the same secret.
func (tx Tokens) Save(t models.Token) error {
	return tx.db().Clauses(clause.OnConflict{UpdateAll: true}).Create(&t).Error
}

// AgentKey returns an agent's key of an algorithm, or errs.NotFound.
func (r tokenReader) AgentKey(agentID, algorithm string) (k models.AgentKey, err error) {
	err = r.db().Take(&k, "agent_id = ? AND algorithm = ?", agentID, algorithm).Error
	return k, orMissing(err, "the agent %q has no %s key", agentID, algorithm)
}

// SaveAgentKey stores an agent's key and replaces the one of the same algorithm. It returns
// errs.Conflict for an unknown agent.
func (tx Tokens) SaveAgentKey(k models.AgentKey) error {
	return tx.db().Clauses(clause.OnConflict{UpdateAll: true}).Create(&k).Error
}

// DeleteAgentKey deletes an agent's key of an algorithm.
func (tx Tokens) DeleteAgentKey(agentID, algorithm string) error {
	return tx.db().Delete(&models.AgentKey{}, "agent_id = ? AND algorithm = ?", agentID, algorithm).Error
}
