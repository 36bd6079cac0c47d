package api

import (
	"net/http"

	"comet/models"
)

// verifyLedger compares the ledger's sums with its facts.
//
//	@Summary		Verify the ledger
//	@Description	Computes every sum of the ledger anew from the facts and reservations under it, as they stand at one moment, and names each that is not what they add up to. The answer is 200 whether or not there are differences; `total_differences` tells.
//	@ID				verifyLedger
//	@Tags			usage
//	@Produce		json
//	@Security		BearerAuth[admin]
//	@Success		200	{object}	models.Verification	"What was found"
//	@Header			200	{string}	Cache-Control
//	@Router			/api/v1/ledger/verify [get]
func (s *Server) verifyLedger(w http.ResponseWriter, r *http.Request) error {
	if err := newQuery(r).Err(); err != nil {
		return err
	}
	v, err := s.usage.Verify(r.Context())
	if err != nil {
		return err
	}
	body, err := s.encode(v)
	if err != nil {
		return err
	}
	// No two answers are the same, so it has no ETag.
	s.writeAnswer(w, models.StoredResponse{Status: http.StatusOK, Header: map[string]string{"Cache-Control": "no-store"}, Body: body})
	return nil
}
