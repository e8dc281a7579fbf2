import java.util.Map;
import org.apache.iceberg.Files;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Iceberg's own catalog behind REST, with tables of this machine's files: {@code java -cp JARS IcebergRestServer.java
 * DIRECTORY} keeps what it knows in a file of SQLite there, listens on a free port of the loopback address and prints it.
 */
public final class IcebergRestServer {
  /** Files by paths and by URLs with the scheme {@code file}. */
  static final class LocalFiles implements FileIO {
    @Override
    public InputFile newInputFile(String location) {
      return Files.localInput(path(location));
    }

    @Override
    public OutputFile newOutputFile(String location) {
      return Files.localOutput(path(location));
    }

    @Override
    public void deleteFile(String location) {
      new java.io.File(path(location)).delete();
    }

    private static String path(String location) {
      return location.startsWith("file:") ? java.net.URI.create(location).getPath() : location;
    }
  }

  public static void main(String[] arguments) throws Exception {
    String directory = arguments[0];
    JdbcCatalog catalog = new JdbcCatalog(properties -> new LocalFiles(), null, true);
    catalog.initialize(
        "rest",
        Map.of(
            "uri", "jdbc:sqlite:" + directory + "/rest.db",
            "warehouse", "file://" + directory,
            "jdbc.schema-version", "V1"));
    ServletContextHandler context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    connector.setPort(0);
    server.addConnector(connector);
    server.setHandler(context);
    server.start();
    System.out.println(connector.getLocalPort());
    server.join();
  }
}
