package store

// DeleteSession deletes a session in which nothing was ever asked for, with its context, and
// reports whether it was such a one. One in which the name of a task is taken, that is not
// written yet, is none.
func (tx *Tx) DeleteSession(id string) (empty bool, err error) {
	n, err := tx.exec(`DELETE FROM sessions WHERE id = ? AND tasks = 0 AND NOT EXISTS (SELECT 1 FROM contexts AS c
		JOIN context_tasks AS n ON n.context = c.number WHERE c.session_id = sessions.id)`, id)
	if err == nil && n > 0 {
		_, err = tx.exec("DELETE FROM contexts WHERE session_id = ?", id)
	}
	return n > 0, err
}
