package toolsearch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/toolsearch"
)

// unmeasuredTools returns an index of tools of kinds that testdata does not have: mail, a
// calendar, a shop, containers, the weather, texts.
func unmeasuredTools() *toolsearch.Index {
	return indexOf(map[string][]toolsearch.Tool{
		"mail":       {tool("mail:send_email", "Send an email to one or several recipients"), tool("mail:list_emails", "List emails of a mailbox"), tool("mail:delete_email", "Delete an email")},
		"calendar":   {tool("calendar:create_event", "Create a calendar event"), tool("calendar:list_events", "List calendar events in a range of time"), tool("calendar:update_event", "Update a calendar event")},
		"shop":       {tool("shop:create_invoice", "Create an invoice for a customer"), tool("shop:refund_payment", "Refund a payment"), tool("shop:get_order", "Get an order")},
		"containers": {tool("containers:list_containers", "List running containers"), tool("containers:stop_container", "Stop a container"), tool("containers:get_logs", "Get the logs of a container")},
		"weather":    {tool("weather:get_forecast", "Get the weather forecast for a place")},
		"texts":      {tool("texts:translate_text", "Translate a text into another language"), tool("texts:summarize_text", "Summarize a text")},
	}, nil)
}

func TestSearchUnmeasuredTools(t *testing.T) {
	t.Parallel()
	x := unmeasuredTools()
	for text, want := range map[string]string{
		"what's in my inbox":                    "mail:list_emails",
		"write a mail to Bob":                   "mail:send_email",
		"book a meeting with Alice on Friday":   "calendar:create_event",
		"which appointments do I have tomorrow": "calendar:list_events",
		"will it rain in Lyon":                  "weather:get_forecast",
		"bill the customer":                     "shop:create_invoice",
		"which pods are up":                     "containers:list_containers",
		"quel temps fera-t-il demain, pluie ?":  "weather:get_forecast",
		"quels conteneurs tournent":             "containers:list_containers",
		"arrete le conteneur web":               "containers:stop_container",
		"rembourser le client":                  "shop:refund_payment",
		"planifier une reunion":                 "calendar:create_event",
		"fais-moi un résumé":                    "texts:summarize_text",
		"traduis ce paragraphe":                 "texts:translate_text",
	} {
		require.Equal(t, want, search(t, x, text)[0], text)
	}
}

func TestSearchActions(t *testing.T) {
	t.Parallel()
	x := indexOne(tool("create_issue", "Create a new issue"), tool("update_issue", "Update an issue"), tool("list_issues", "List issues"), tool("get_issue", "Get an issue"))
	for text, want := range map[string]string{
		"what changed in the issue":               "fs:get_issue", // a question reads
		"how do I change the list of issues":      "fs:update_issue",
		"see the updated issue":                   "fs:get_issue", // the first verb counts
		"modifie le ticket que je viens de créer": "fs:update_issue",
	} {
		require.Equal(t, want, search(t, x, text)[0], text)
	}
}

func TestSearchSynonyms(t *testing.T) {
	t.Parallel()

	t.Run("of a one-way row in one direction", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("get_page", "Get a page"), tool("get_wiki", "Get a wiki"))
		require.Equal(t, []string{"fs:get_wiki", "fs:get_page"}, search(t, x, "wiki"), "the word itself weighs more than its synonym")
		require.Equal(t, []string{"fs:get_page"}, search(t, x, "page"))
	})

	t.Run("of phrases of stop words", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("get_info", "Get information"), tool("get_self", "Get the user of the token"), tool("other", "Something"))
		require.Equal(t, "fs:get_self", search(t, x, "who am I")[0])
		require.Equal(t, "fs:get_self", search(t, x, "qui suis-je")[0])
		require.Equal(t, "fs:get_info", search(t, x, "how big is it")[0])
	})

	t.Run("of several parts, of which a tool needs each", func(t *testing.T) {
		t.Parallel()
		x := indexOne(tool("merge_pull_request", "Merge a pull request"), tool("merge_cells", "Merge cells"), tool("pull_image", "Pull an image"))
		require.Equal(t, "fs:merge_pull_request", search(t, x, "fusionner la PR 12")[0])
		x = indexOne(
			tool("add_observations", "Adds observations"), tool("delete_observations", "Deletes observations"), tool("search_memory", "Searches the memory"),
			tool("create_relations", "Creates relations between entities"), tool("delete_entities", "Deletes entities"), tool("submit_task", "Submits work"), tool("get_file_info", "Size and times of a file"),
		)
		for text, want := range map[string]string{
			"remember that Bob works at Acme": "fs:add_observations", "note that Alice likes tea": "fs:add_observations", "se souvenir de Paul": "fs:add_observations", "noter que Paul est là": "fs:add_observations",
			"what do you remember about Paul": "fs:search_memory", "te souviens-tu de Paul": "fs:search_memory",
			"connect two entities": "fs:create_relations", "relier deux personnes": "fs:create_relations",
			"confier un travail": "fs:submit_task", "quand le fichier a-t-il été modifié": "fs:get_file_info",
		} {
			require.Equal(t, want, search(t, x, text)[0], text)
		}
	})
}
