// What ONNX Runtime calls in a plugin execution provider, and what such a provider calls: the part of the interface of 1.23 that headers before
// it lack. Order and signatures are those of its published description; members that octavo does not use only keep their place. Types are
// opaque, so that a header of any age stands beside this one; where it is of 1.23 or later, ep_abi.cc compares.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_ABI_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_ABI_H_

#include <onnxruntime_c_api.h>

#include <cstddef>
#include <cstdint>

namespace octavo::integrations::onnxruntime::abi {

// Of the provider, wherever ONNX Runtime names one.
inline constexpr const char* kProviderName = "OctavoExecutionProvider";

constexpr uint32_t kVersion = 23;
constexpr uint32_t kWithProfiler = 25;  // the version that can be given a profiler

struct Graph;
struct Node;
struct ValueInfo;
struct HardwareDevice;
struct EpDevice;
struct KeyValuePairs;
struct SupportInfo;
struct ComputeContext;
struct Ep;
struct Factory;
struct ProfilingEvent;
struct ProfilingEvents;

using Unused = void (*)();
using Status = OrtStatus*;

// OrtApi behind SetEpDynamicOptions, the last member of version 21.
struct Tail {
  Unused of_22_release[4];  // ValueInfo, Node, Graph, Model
  Status (*GetValueInfoName)(const ValueInfo*, const char** name);
  Status (*GetValueInfoTypeInfo)(const ValueInfo*, const OrtTypeInfo** type);
  const struct ModelEditorApi* (*GetModelEditorApi)();
  Unused of_22_model[3];  // CreateTensorWithDataAndDeleterAsOrtValue to GetCompileApi
  Unused of_22_pairs[3];  // CreateKeyValuePairs to GetKeyValue
  void (*GetKeyValuePairs)(const KeyValuePairs*, const char* const** keys, const char* const** values, size_t* count);
  Unused of_22_remove;
  void (*ReleaseKeyValuePairs)(KeyValuePairs*);
  Unused of_22_session[6];  // RegisterExecutionProviderLibrary to SessionOptionsSetEpSelectionPolicyDelegate
  int (*HardwareDevice_Type)(const HardwareDevice*);  // 0: a CPU
  Unused of_22_device[4];                             // HardwareDevice_VendorId to HardwareDevice_Metadata
  Unused of_22_ep_device[5];                          // EpDevice_EpName to EpDevice_Device
  const struct EpApi* (*GetEpApi)();
  Unused of_22_memory[5];    // GetTensorSizeInBytes to MemoryInfoGetVendorId
  Unused of_23_producer[3];  // ValueInfo_GetValueProducer to ValueInfo_GetValueConsumers
  Status (*ValueInfo_GetInitializerValue)(const ValueInfo*, const OrtValue** value);
  Unused of_23_external;
  Unused of_23_graph_input[2];  // required, optional
  Status (*ValueInfo_IsGraphOutput)(const ValueInfo*, bool* is);
  Status (*ValueInfo_IsConstantInitializer)(const ValueInfo*, bool* is);
  Status (*ValueInfo_IsFromOuterScope)(const ValueInfo*, bool* is);
  Unused of_23_name;
  Status (*Graph_GetModelPath)(const Graph*, const char** path);  // "": from memory
  Status (*Graph_GetOnnxIRVersion)(const Graph*, int64_t* version);
  Status (*Graph_GetNumOperatorSets)(const Graph*, size_t* count);
  Status (*Graph_GetOperatorSets)(const Graph*, const char** domains, int64_t* versions, size_t count);
  Status (*Graph_GetNumInputs)(const Graph*, size_t* count);
  Status (*Graph_GetInputs)(const Graph*, const ValueInfo** inputs, size_t count);
  Status (*Graph_GetNumOutputs)(const Graph*, size_t* count);
  Status (*Graph_GetOutputs)(const Graph*, const ValueInfo** outputs, size_t count);
  Status (*Graph_GetNumInitializers)(const Graph*, size_t* count);
  Status (*Graph_GetInitializers)(const Graph*, const ValueInfo** initializers, size_t count);
  Status (*Graph_GetNumNodes)(const Graph*, size_t* count);
  Status (*Graph_GetNodes)(const Graph*, const Node** nodes, size_t count);
  Status (*Graph_GetParentNode)(const Graph*, const Node** node);
  Unused of_23_view;
  Unused of_23_id;
  Status (*Node_GetName)(const Node*, const char** name);
  Status (*Node_GetOperatorType)(const Node*, const char** type);
  Status (*Node_GetDomain)(const Node*, const char** domain);
  Unused of_23_since;
  Status (*Node_GetNumInputs)(const Node*, size_t* count);
  Status (*Node_GetInputs)(const Node*, const ValueInfo** inputs, size_t count);
  Status (*Node_GetNumOutputs)(const Node*, size_t* count);
  Status (*Node_GetOutputs)(const Node*, const ValueInfo** outputs, size_t count);
  Status (*Node_GetNumImplicitInputs)(const Node*, size_t* count);
  Status (*Node_GetImplicitInputs)(const Node*, const ValueInfo** inputs, size_t count);
  Status (*Node_GetNumAttributes)(const Node*, size_t* count);
  Status (*Node_GetAttributes)(const Node*, const OrtOpAttr** attributes, size_t count);
  Unused of_23_by_name;
  Status (*OpAttr_GetTensorAttributeAsOrtValue)(const OrtOpAttr*, OrtValue** tensor);
  Status (*OpAttr_GetType)(const OrtOpAttr*, int* type);
  Status (*OpAttr_GetName)(const OrtOpAttr*, const char** name);
  Status (*Node_GetNumSubgraphs)(const Node*, size_t* count);
  Status (*Node_GetSubgraphs)(const Node*, const Graph** graphs, size_t count, const char** attribute_names);
  Unused of_23_node[2];         // Node_GetGraph, Node_GetEpName
  Unused of_23_initializer[4];  // ReleaseExternalInitializerInfo to ExternalInitializerInfo_GetByteSize
  Unused of_23_run_config;
  Unused of_23_memory_info;
  Unused of_23_allocator[3];  // CreateSharedAllocator to ReleaseSharedAllocator
  Unused of_23_data;          // GetTensorData
  Status (*GetSessionOptionsConfigEntries)(const OrtSessionOptions*, KeyValuePairs** entries);
};
constexpr size_t kTailAt = offsetof(OrtApi, SetEpDynamicOptions) + sizeof(Unused);
inline const Tail& TailOf(const OrtApi& api) {
  return *reinterpret_cast<const Tail*>(reinterpret_cast<const std::byte*>(&api) + kTailAt);
}

// OrtOpAttrType; older headers end with the lists of texts.
enum AttrType : int { kInt = 1, kInts, kFloat, kFloats, kString, kStrings, kGraph, kTensor };

struct FusionOptions {
  uint32_t version = kVersion;
  bool drop_constant_initializers = false;
};

struct EpApi {
  Status (*CreateEpDevice)(Factory*, const HardwareDevice*, const KeyValuePairs* metadata, const KeyValuePairs* options,
                           EpDevice** device);
  Unused release_ep_device;
  Status (*AddNodesToFuse)(SupportInfo*, const Node* const* nodes, size_t count, const FusionOptions*);
};

// Of EpApi from 1.25 on.
constexpr int kKernelEvent = 2;
struct ProfilingApi {
  Status (*CreateProfilingEvent)(int category, int32_t process, int32_t thread, const char* name, int64_t start_us,
                                 int64_t duration_us, const char* const* keys, const char* const* values, size_t count,
                                 ProfilingEvent** event);
  void (*ReleaseProfilingEvent)(ProfilingEvent*);
  Unused of_event[5];  // ProfilingEvent_GetCategory to ProfilingEvent_GetArgValue
  Status (*ProfilingEventsContainer_AddEvents)(ProfilingEvents*, const ProfilingEvent* const* events, size_t count);
};
constexpr size_t kProfilingAt = 65 * sizeof(Unused);  // behind OpSchemaTypeConstraint_GetOutputIndices
inline const ProfilingApi& ProfilingOf(const EpApi& api) {
  return *reinterpret_cast<const ProfilingApi*>(reinterpret_cast<const std::byte*>(&api) + kProfilingAt);
}

struct Profiler {
  uint32_t version = kWithProfiler;
  void (*Release)(Profiler*) = nullptr;
  Status (*StartProfiling)(Profiler*, int64_t offset_ns) = nullptr;
  Status (*StartEvent)(Profiler*, uint64_t id) = nullptr;
  Status (*StopEvent)(Profiler*, uint64_t id, const ProfilingEvent*) = nullptr;
  Status (*EndProfiling)(Profiler*, ProfilingEvents*) = nullptr;
};

struct ModelEditorApi {
  Unused of_types[5];  // CreateTensorTypeInfo to CreateOptionalTypeInfo
  Unused create_value_info;
  Status (*CreateNode)(const char* op, const char* domain, const char* name, const char* const* inputs,
                       size_t input_count, const char* const* outputs, size_t output_count, OrtOpAttr** attributes,
                       size_t attribute_count, Node** node);
};

struct ComputeInfo {
  uint32_t version = kVersion;
  Status (*CreateState)(ComputeInfo*, ComputeContext*, void** state) = nullptr;
  Status (*Compute)(ComputeInfo*, void* state, OrtKernelContext*) = nullptr;
  void (*ReleaseState)(ComputeInfo*, void* state) = nullptr;
};

struct Ep {
  uint32_t version = kVersion;
  const char* (*GetName)(const Ep*) = nullptr;
  Status (*GetCapability)(Ep*, const Graph*, SupportInfo*) = nullptr;
  Status (*Compile)(Ep*, const Graph** graphs, const Node** fused, size_t count, ComputeInfo** infos,
                    Node** context_nodes) = nullptr;
  void (*ReleaseNodeComputeInfos)(Ep*, ComputeInfo** infos, size_t count) = nullptr;
  Unused optional[8] = {};  // GetPreferredDataLayout to GetCompiledModelCompatibilityInfo
  Unused since_24[3] = {};  // GetKernelRegistry to Sync
  Status (*CreateProfiler)(Ep*, Profiler** profiler) = nullptr;
};

struct Factory {
  uint32_t version = kVersion;
  const char* (*GetName)(const Factory*) = nullptr;
  const char* (*GetVendor)(const Factory*) = nullptr;
  Status (*GetSupportedDevices)(Factory*, const HardwareDevice* const* devices, size_t count, EpDevice** ep_devices,
                                size_t most, size_t* made) = nullptr;
  Status (*CreateEp)(Factory*, const HardwareDevice* const* devices, const KeyValuePairs* const* metadata, size_t count,
                     const OrtSessionOptions*, const OrtLogger*, Ep** ep) = nullptr;
  void (*ReleaseEp)(Factory*, Ep*) = nullptr;
  uint32_t (*GetVendorId)(const Factory*) = nullptr;
  const char* (*GetVersion)(const Factory*) = nullptr;
  Unused validate_compiled_model = nullptr;
  Status (*CreateAllocator)(Factory*, const OrtMemoryInfo*, const KeyValuePairs*, OrtAllocator** allocator) = nullptr;
  void (*ReleaseAllocator)(Factory*, OrtAllocator*) = nullptr;
  Status (*CreateDataTransfer)(Factory*, void** transfer) = nullptr;
  bool (*IsStreamAware)(const Factory*) = nullptr;
  Unused create_sync_stream = nullptr;
};

}  // namespace octavo::integrations::onnxruntime::abi

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_ABI_H_
