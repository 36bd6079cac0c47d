// Package dashboard serves the page for browsers below /ui/, and the login with which a browser uses the REST API.
// The page calls only the public REST API and its event stream. Its source is in the folder ui; "go generate" bundles
// it into the folder dist, which is committed, so that a build of comet needs no tool but Go.
package dashboard

//go:generate go run ./bundle -out dist
