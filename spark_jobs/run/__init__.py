"""How tasks are run: Spark's session, JVM and workers, and the directory where tasks leave what they made."""
