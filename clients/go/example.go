// Optimises a graph and undoes it. Usage: example URL TOKEN graph.json
package main

import (
	"context"
	"fmt"
	"os"

	"foldback"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	configuration := foldback.NewConfiguration()
	configuration.Servers[0].URL = os.Args[1]
	client := foldback.NewAPIClient(configuration)
	ctx := context.WithValue(context.Background(), foldback.ContextAccessToken, os.Args[2])
	document, err := os.ReadFile(os.Args[3])
	check(err)
	var graph foldback.Graph
	check(graph.UnmarshalJSON(document))
	stored, _, err := client.GraphsAPI.PutGraph(ctx).Graph(graph).Execute()
	check(err)
	pass := "MergeLinears"
	request := foldback.NewOptimizeRequest(foldback.GraphOrId{String: &stored.Id}, []foldback.PassCompositionInner{{String: &pass}})
	run, _, err := client.OptimizeAPI.Optimize(ctx).OptimizeRequest(*request).Execute()
	check(err)
	undone, _, err := client.UndoAPI.ReverseRun(ctx, run.GetId()).ReverseRequest(*foldback.NewReverseRequest()).Execute()
	check(err)
	fmt.Println("applied:", run.Passes[0].Applied, "undone:", undone.Result == run.Source)
}
