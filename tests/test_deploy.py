"""What is deployed to Kubernetes fits its schemas and Spark's own names, as far as that is known without a cluster."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

if TYPE_CHECKING:
    from pyspark import SparkContext

ROOT = Path(__file__).parent.parent
MANIFEST = ROOT / "deploy" / "kubernetes.yaml"

Document = dict[str, Any]


def documents() -> list[Document]:
    return list(yaml.safe_load_all(MANIFEST.read_text()))


def of_kind(kind: str) -> Document:
    (found,) = [each for each in documents() if each["kind"] == kind]
    return found


def settings(words: str) -> dict[str, str]:
    """What `--conf NAME=VALUE` or `--conf=NAME=VALUE` says in a text."""
    return dict(re.findall(r"--conf[ =](spark\.[\w.]+)=(\S+)", words))


def submitted() -> list[str]:
    (container,) = of_kind("Job")["spec"]["template"]["spec"]["containers"]
    command: list[str] = container["command"]
    return command


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_every_object_fits_the_schema_of_kubernetes(version: str) -> None:
    kinds = [each["kind"] for each in documents()]
    assert {"ServiceAccount", "Role", "RoleBinding", "Service", "Job"} < set(kinds)
    for each in documents():
        kubernetes_validate.validate(each, version, strict=True)


def test_the_objects_name_one_another() -> None:
    job, service, binding = of_kind("Job"), of_kind("Service"), of_kind("RoleBinding")
    pod = job["spec"]["template"]
    namespace = of_kind("Namespace")["metadata"]["name"]
    assert {each["metadata"]["namespace"] for each in documents() if each["kind"] != "Namespace"} == {namespace}
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    account = of_kind("ServiceAccount")["metadata"]["name"]
    assert pod["spec"]["serviceAccountName"] == account
    assert [each["name"] for each in binding["subjects"]] == [account]
    assert binding["roleRef"]["name"] == of_kind("Role")["metadata"]["name"]
    given = settings(" ".join(submitted()))
    ports = {each["name"]: str(each["port"]) for each in service["spec"]["ports"]}
    assert ports == {"driver": given["spark.driver.port"], "block-manager": given["spark.driver.blockManager.port"]}
    assert given["spark.driver.host"] == f"{service['metadata']['name']}.{namespace}.svc"
    assert given["spark.kubernetes.namespace"] == namespace
    (container,) = pod["spec"]["containers"]
    assert given["spark.kubernetes.container.image"] == container["image"]


def test_the_page_shows_what_the_job_submits() -> None:
    page = (ROOT / "docs" / "clusters.md").read_text()
    shown = settings(page.partition("## Kubernetes")[2].partition("\n## ")[0])
    given = settings(" ".join(submitted()))
    assert given.pop("spark.kubernetes.driver.pod.name") == "$(POD_NAME)"
    assert shown == given
    assert len(shown) > 8


def test_the_executor_that_spark_makes_of_the_settings_fits_the_schema_and_mounts_the_store(
    spark: "SparkContext",
) -> None:
    """Rendered by Spark's own builder, without a cluster; its memory is that of the session of these tests."""
    virtual_machine: Any = spark._jvm
    given, packages = settings(" ".join(submitted())), virtual_machine.org.apache.spark
    configuration = spark._jsc.sc().conf().clone()
    for name, value in given.items():
        configuration.set(name, value)
    configuration.remove("spark.kubernetes.driver.pod.name")  # whose pod Spark would ask the cluster for
    nothing = _module(virtual_machine.scala, "None")
    secret = _module(packages.internal.config, "package").AUTH_SECRET_FILE_EXECUTOR()
    profile = _module(packages.resource, "ResourceProfile").getOrCreateDefaultProfile(configuration)
    executor = packages.deploy.k8s.KubernetesExecutorConf(configuration, "app-1", "1", nothing, 0)
    security = packages.SecurityManager(configuration, nothing, secret)
    builder = packages.scheduler.cluster.k8s.KubernetesExecutorBuilder()
    made = builder.buildFromFeatures(executor, security, None, profile).pod()
    as_yaml = virtual_machine.io.fabric8.kubernetes.client.utils.Serialization.asYaml
    pod, container = yaml.safe_load(as_yaml(made.pod())), yaml.safe_load(as_yaml(made.container()))
    pod["spec"]["containers"] = [container]
    kubernetes_validate.validate(pod, "1.37", strict=True)
    assert container["image"] == given["spark.kubernetes.container.image"]
    (mounted,) = [each for each in container["volumeMounts"] if each["mountPath"] == "/mnt"]
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == mounted["name"]]
    assert volume["persistentVolumeClaim"]["claimName"] == "store"


def _module(package: Any, name: str) -> Any:
    """An object of Scala's."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
