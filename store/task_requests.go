package store

import (
	"comet/internal/errs"
	"comet/models"
)

// ClaimRequest keeps that a request made a task. Where the same owner's request_id is
// taken, it returns the earlier request and false; two at the same moment wait for
// each other.
func (tx *Tx) ClaimRequest(r models.TaskRequest) (models.TaskRequest, bool, error) {
	n, err := tx.exec("INSERT INTO task_requests (owner, request_id, digest, task_id, created_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
		r.Owner, r.RequestID, r.Digest[:], r.TaskID, micros(tx.now))
	if err != nil || n == 1 {
		return r, err == nil, err
	}
	earlier := models.TaskRequest{Owner: r.Owner, RequestID: r.RequestID}
	var digest []byte
	err = tx.queryRow("SELECT digest, task_id FROM task_requests WHERE owner = ? AND request_id = ?", []any{r.Owner, r.RequestID}, &digest, &earlier.TaskID)
	copy(earlier.Digest[:], digest)
	if errs.Is(err, errs.NotFound) { // purged between the two
		err = errs.New(errs.Busy, "the request is being forgotten at this moment, try again")
	}
	return earlier, false, err
}
