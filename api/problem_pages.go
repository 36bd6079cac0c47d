package api

import (
	"net/http"
	"slices"

	"github.com/go-chi/chi/v5"

	"comet/internal/errs"
	"comet/internal/words"
)

// ProblemType describes a problem code. The type member of a problem document is its address.
type ProblemType struct {
	Type   string    `json:"type" example:"/problems/parent-not-found"`
	Code   errs.Code `json:"code" example:"parent-not-found"`
	Title  string    `json:"title" example:"Parent not found"`
	Status int       `json:"status" example:"400"`
}

// problemPage returns a problem type.
//
//	@Summary		Get a problem type
//	@Description	Returns the title and the HTTP status of a problem code. The `type` of a problem document is this address.
//	@ID				getProblemType
//	@Tags			service
//	@Produce		json
//	@Security
//	@Param			code			path	string	true	"The problem's code"	example(parent-not-found)
//	@Param			If-None-Match	header	string	false	"The ETag you have"
//	@Success		200	{object}	ProblemType	"The problem type"
//	@Header			200	{string}	ETag
//	@Success		304	"Nothing changed"
//	@Failure		404	"No such problem type"
//	@Router			/problems/{code} [get]
func (p *responder) problemPage(w http.ResponseWriter, r *http.Request) error {
	code := errs.Code(chi.URLParam(r, "code"))
	if !slices.Contains(errs.Codes(), code) {
		return errs.New(errs.NotFound, "there is no problem type %s", words.Quote(string(code)))
	}
	return p.writeJSON(w, r, http.StatusOK, ProblemType{
		Type: "/problems/" + string(code), Code: code, Title: code.Title(),
		Status: statusOf(code.Class()),
	})
}
