package toolsearch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/toolsearch"
)

// otherTools are some of a mail server, a calendar, a shop, containers and the weather:
// nothing that the evaluation set has.
func otherTools() *toolsearch.Index {
	return indexOf(map[string][]toolsearch.Tool{
		"post":   {tool("post:send_email", "Send an email to one or several recipients"), tool("post:list_emails", "List emails of a mailbox"), tool("post:delete_email", "Delete an email")},
		"dates":  {tool("dates:create_event", "Create a calendar event"), tool("dates:list_events", "List calendar events in a range of time"), tool("dates:update_event", "Update a calendar event")},
		"shop":   {tool("shop:create_invoice", "Create an invoice for a customer"), tool("shop:refund_payment", "Refund a payment"), tool("shop:get_order", "Get an order")},
		"boxes":  {tool("boxes:list_containers", "List running containers"), tool("boxes:stop_container", "Stop a container"), tool("boxes:get_logs", "Get the logs of a container")},
		"sky":    {tool("sky:get_forecast", "Get the weather forecast for a place")},
		"tongue": {tool("tongue:translate_text", "Translate a text into another language"), tool("tongue:summarize_text", "Summarize a text")},
	}, nil)
}

// TestSearchKnowsTheFieldBeyondWhatItIsMeasuredOn asks for tools of kinds that are not in
// testdata.
func TestSearchKnowsTheFieldBeyondWhatItIsMeasuredOn(t *testing.T) {
	t.Parallel()
	x := otherTools()
	for text, want := range map[string]string{
		"what's in my inbox":                    "post:list_emails",
		"write a mail to Bob":                   "post:send_email",
		"book a meeting with Alice on Friday":   "dates:create_event",
		"which appointments do I have tomorrow": "dates:list_events",
		"will it rain in Lyon":                  "sky:get_forecast",
		"bill the customer":                     "shop:create_invoice",
		"which pods are up":                     "boxes:list_containers",
		"quel temps fera-t-il demain, pluie ?":  "sky:get_forecast",
		"quels conteneurs tournent":             "boxes:list_containers",
		"arrete le conteneur web":               "boxes:stop_container",
		"rembourser le client":                  "shop:refund_payment",
		"planifier une reunion":                 "dates:create_event",
		"fais-moi un résumé":                    "tongue:summarize_text",
		"traduis ce paragraphe":                 "tongue:translate_text",
	} {
		require.Equal(t, want, found(t, x, text)[0], text)
	}
}

// TestSearchListensTo has the rules by which a query is taken apart.
func TestSearchListensTo(t *testing.T) {
	t.Parallel()
	issues := one(tool("create_issue", "Create a new issue"), tool("update_issue", "Update an issue"), tool("list_issues", "List issues"), tool("get_issue", "Get an issue"))
	files := one(tool("edit_file", "Edit a file"), tool("get_config", "Get a config value"), tool("delete_page", "Delete a page"), tool("find_files", "Find files"),
		tool("list_directory", "List a directory"), tool("open_url", "Open a URL"), tool("convert_coordinates", "Convert coordinates"))
	for _, c := range []struct {
		rule       string
		among      *toolsearch.Index
		text, want string
	}{
		{"WhatAQuestionWants", issues, "what changed in the issue", "fs:get_issue"},
		{"WhatIsToBeDoneBehindHowTo", issues, "how do I change the list of issues", "fs:update_issue"},
		{"WhatTheFirstVerbWants", issues, "see the updated issue", "fs:get_issue"},
		{"NamesOfFilesLess", files, "fix the port in config.yaml", "fs:edit_file"},
		{"QuotationsLess", files, `find "delete the page"`, "fs:find_files"},
		{"FrenchQuotationsLess", files, "trouver « delete page »", "fs:find_files"},
		{"WhatAPathIs", files, "du -sh /var/tmp", "fs:list_directory"},
		{"WhatAnAddressIs", files, "curl https://example.com/x", "fs:open_url"},
		{"WhatTwoNumbersAre", files, "what is 48.85, 2.35", "fs:convert_coordinates"},
		{"WordsWithAStrokeBetween", files, "edit/replace the page", "fs:edit_file"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, found(t, c.among, c.text)[0])
		})
	}
}

// TestSearchTakesMeanings has the rules of the rows of meanings.
func TestSearchTakesMeanings(t *testing.T) {
	t.Parallel()

	t.Run("OneWay", func(t *testing.T) {
		t.Parallel()
		x := one(tool("get_page", "Get a page"), tool("get_wiki", "Get a wiki"))
		require.Equal(t, []string{"fs:get_wiki", "fs:get_page"}, found(t, x, "wiki"), "what was said comes before what it means")
		require.Equal(t, []string{"fs:get_page"}, found(t, x, "page"))
	})

	t.Run("OfPhrasesOfSmallWords", func(t *testing.T) {
		t.Parallel()
		x := one(tool("get_info", "Get information"), tool("get_self", "Get the user of the token"), tool("other", "Something"))
		require.Equal(t, "fs:get_self", found(t, x, "who am I")[0])
		require.Equal(t, "fs:get_self", found(t, x, "qui suis-je")[0])
		require.Equal(t, "fs:get_info", found(t, x, "how big is it")[0])
	})

	t.Run("OfShortFormsInFrenchToo", func(t *testing.T) {
		t.Parallel()
		x := one(tool("merge_pull_request", "Merge a pull request"), tool("merge_cells", "Merge cells"), tool("pull_image", "Pull an image"))
		require.Equal(t, "fs:merge_pull_request", found(t, x, "fusionner la PR 12")[0])
	})

	t.Run("OfAGeneralWordBeforeAServerOfThatName", func(t *testing.T) {
		t.Parallel()
		x := indexOf(map[string][]toolsearch.Tool{
			"everything": {tool("everything:echo", "Repeats a text"), tool("everything:list_odds", "List odds and ends")},
			"fs":         {tool("fs:list_files", "List files"), tool("fs:read_file", "Read a file")},
		}, nil)
		require.Equal(t, "fs:list_files", found(t, x, "list everything of the files")[0])
		require.Equal(t, "fs:read_file", found(t, x, "read the file echo.json")[0], "the name of a file names no server")
	})
}
