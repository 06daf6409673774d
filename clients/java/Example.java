import foldback.ApiClient;
import foldback.JSON;
import foldback.api.GraphsApi;
import foldback.api.OptimizeApi;
import foldback.api.UndoApi;
import foldback.model.*;
import java.nio.file.*;
import java.util.List;

/** Optimises a graph and undoes it. Usage: Example URL TOKEN graph.json */
public class Example {
    public static void main(String[] words) throws Exception {
        ApiClient client = new ApiClient();
        client.updateBaseUri(words[0]);
        client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + words[1]));
        Graph graph = JSON.getDefault().getMapper().readValue(Files.readString(Path.of(words[2])), Graph.class);
        StoredGraph stored = new GraphsApi(client).putGraph(GraphsApi.APIPutGraphRequest.newBuilder().graph(graph).build());
        OptimizeRequest wanted = new OptimizeRequest().graph(new GraphOrId(stored.getId())).passes(List.of("MergeLinears"));
        Run run = new OptimizeApi(client).optimize(OptimizeApi.APIOptimizeRequest.newBuilder().optimizeRequest(wanted).build());
        var undo = UndoApi.APIReverseRunRequest.newBuilder().run(run.getId()).reverseRequest(new ReverseRequest());
        Run undone = new UndoApi(client).reverseRun(undo.build());
        System.out.println("applied: " + run.getPasses().get(0).getApplied() + " undone: " + undone.getResult().equals(run.getSource()));
    }
}
