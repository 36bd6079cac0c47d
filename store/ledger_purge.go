package store

import "time"

// ForgetUsageBefore notes that facts and windows of days before day may be gone. It
// never goes back.
func (tx *Tx) ForgetUsageBefore(day int64) error {
	_, err := tx.exec("UPDATE usage_kept SET from_day = ? WHERE id = 1 AND from_day < ?", day, day)
	return err
}

// PurgeUsage deletes up to limit rows of each kind that belong to days before day,
// and returns how many.
func (tx *Tx) PurgeUsage(day int64, limit int) (int64, error) {
	before := micros(time.Unix(day*86400, 0))
	var all int64
	for _, d := range []struct {
		statement string
		args      []any
	}{
		{`DELETE FROM usage_facts WHERE (agent_id, at, id) IN (SELECT f.agent_id, f.at, f.id
			FROM usage_accounts a CROSS JOIN usage_facts f WHERE f.agent_id = a.agent_id AND f.at < ? LIMIT ?)`, []any{before, limit}},
		{`DELETE FROM usage_windows WHERE (agent_id, hour, path) IN
			(SELECT agent_id, hour, path FROM usage_windows WHERE hour / 24 < ? LIMIT ?)`, []any{day, limit}},
		{`DELETE FROM usage_reservations WHERE (agent_id, id) IN
			(SELECT agent_id, id FROM usage_reservations WHERE state IN (1, 2, 3) AND due < ? LIMIT ?)`, []any{before, limit}},
		{`DELETE FROM outcomes WHERE id IN (SELECT o.id
			FROM agents a CROSS JOIN outcomes o WHERE o.agent_id = a.id AND o.at < ? LIMIT ?)`, []any{before, limit}},
		{`DELETE FROM usage_resets WHERE (agent_id, day, id) IN (SELECT r.agent_id, r.day, r.id FROM usage_resets r WHERE r.day < ? LIMIT ?)`,
			[]any{day, limit}},
		{`DELETE FROM budget_additions WHERE (agent_id, id) IN (SELECT b.agent_id, b.id FROM budget_additions b WHERE b.expires_at < ? LIMIT ?)`,
			[]any{before, limit}},
	} {
		n, err := tx.exec(d.statement, d.args...)
		if err != nil {
			return all, err
		}
		all += n
	}
	return all, nil
}
